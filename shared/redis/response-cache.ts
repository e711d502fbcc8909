/**
 * Redis in front of a store that keeps its results itself: a cache of completed
 * ones and nothing else. It holds no claim, so there is none to lose.
 */
import type { Cache } from '../core/contract.ts';
import { openCircuitBreaker, type RedisCacheOptions, retryOnReconnect } from './circuit-breaker.ts';
import { firstConnection } from './client.ts';
import { decode, encodeCompleted } from './entries.ts';
import { entryNames } from './keys.ts';

/** Whose results these are, and what makes two requests the same there. */
export interface CachedStore {
  /** A part of every entry's name. */
  readonly store: string;
  /** True where two routes are two requests, though they share a key. */
  readonly isPerEndpoint: boolean;
}

export type ResponseCacheOptions = RedisCacheOptions & CachedStore;

/** @throws TypeError without a namespace. */
export function redisResponseCache(options: ResponseCacheOptions): Cache {
  const { redis, store, isPerEndpoint } = options;
  if (typeof isPerEndpoint !== 'boolean') {
    throw new TypeError(
      'redisResponseCache: isPerEndpoint must be true (recordStore) or false (dynamoStore): it says whether two routes are two requests',
    );
  }
  const nameOf = entryNames(options);
  const guarded = openCircuitBreaker(options);
  return {
    claim: async (mutation) => {
      const { principal, endpoint, key } = mutation;
      const identity = isPerEndpoint ? [principal, endpoint, key] : [principal, key];
      const name = nameOf(store, ...identity);
      const found = await guarded('claim', async () => {
        await firstConnection(redis, options.connectBudgetMs);
        return redis.get(name);
      });
      const lookup = found?.answer ? decode(found.answer) : undefined;
      return {
        lookup: lookup?.kind === 'completed' ? lookup : { kind: 'unknown' },
        publish: async (kept, expiresAtMs) => {
          const completed = encodeCompleted(mutation.fingerprint, kept, expiresAtMs);
          const command = () => redis.set(name, completed, 'PXAT', Math.floor(expiresAtMs));
          await guarded('publish', () => retryOnReconnect(redis, command));
        },
        release: async () => {},
      };
    },
  };
}
