/** Redis in front of a store: the claim cache of markers, and a cache of completed responses. */

export { type ClaimCacheOptions, redisClaimCache } from './claim-cache.ts';
export { createRedis, type RedisClient, type RedisOptions } from './client.ts';
export { type ResponseCacheOptions, redisResponseCache } from './response-cache.ts';
