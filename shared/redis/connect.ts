/** One client and the caches on it: what `lazy.ts` loads with the first command. */
import { nowMs } from '../core/clock.ts';
import type { Cache } from '../core/contract.ts';
import type { RedisCacheOptions } from './circuit-breaker.ts';
import { redisClaimCache } from './claim-cache.ts';
import { createRedis, firstConnection, type RedisOptions } from './client.ts';
import type { IssuedPassword } from './credentials.ts';
import { type AwsCredentials, cacheToken } from './elasticache-token.ts';
import { type CachedStore, redisResponseCache } from './response-cache.ts';

/** What can stand in front of a store: a claim and its response, or completed responses only. */
export type CacheKind = 'claims' | CachedStore;

type ClientOptions = Omit<RedisOptions, 'password' | 'onError'>;

export interface RedisConnectOptions extends ClientOptions, Omit<RedisCacheOptions, 'redis'> {
  /** Tokens of ElastiCache in place of the URL's password. */
  readonly signIn?: TokenSignIn | undefined;
  /** The longest time that a request may take. */
  readonly longestRequestMs: number;
  /** The client connects again by itself: this is for a log. */
  onConnectionError(error: Error): void;
}

export interface TokenSignIn {
  /** The ElastiCache Serverless cache that tokens are signed for. */
  readonly cacheName: string;
  readonly region: string;
  /** Asked for each token. */
  credentials(): AwsCredentials;
}

export interface RedisCaches {
  cache(kind: CacheKind): Cache;
  /** Rejects when it cannot be used now. */
  ping(): Promise<unknown>;
  close(): Promise<void>;
}

export function connectRedis(options: RedisConnectOptions): RedisCaches {
  const { url, signIn, connectBudgetMs } = options;
  const redis = createRedis({
    ...options,
    password: signIn && issuedTokens(url, signIn),
    onError: options.onConnectionError,
  });
  const cacheOptions = { ...options, redis };
  return {
    cache: (kind) =>
      kind === 'claims'
        ? redisClaimCache(cacheOptions)
        : redisResponseCache({ ...cacheOptions, ...kind }),
    ping: async () => {
      await firstConnection(redis, connectBudgetMs);
      return redis.ping();
    },
    close: async () => redis.disconnect(),
  };
}

/** Half of the 12 hours after which ElastiCache cuts a connection off. */
const RENEW_EVERY_MS = 6 * 3_600_000;

function issuedTokens(
  url: string,
  { cacheName, region, credentials }: TokenSignIn,
): IssuedPassword {
  const user = decodeURIComponent(new URL(url).username);
  return {
    issue: () =>
      cacheToken({ user, cacheName, region, credentials: credentials(), nowMs: nowMs() }),
    renewEveryMs: RENEW_EVERY_MS,
  };
}
