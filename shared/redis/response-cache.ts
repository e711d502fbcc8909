/**
 * Redis in front of a store that keeps its results itself: a cache of completed
 * ones and nothing else. It holds no claim, so there is none to lose.
 */
import type { Cache, Mutation } from '../core/contract.ts';
import { openCircuitBreaker, type RedisCacheOptions, retryOnReconnect } from './circuit-breaker.ts';
import { firstConnection } from './client.ts';
import { decode, encodeCompleted } from './entries.ts';
import { entryNames } from './keys.ts';

export interface ResponseCacheOptions extends RedisCacheOptions {
  /** Whose results these are; it decides what makes two requests the same. */
  readonly store: 'record' | 'dynamo';
}

/** @throws TypeError without a namespace. */
export function redisResponseCache(options: ResponseCacheOptions): Cache {
  const { redis, store } = options;
  const nameOf = entryNames(options);
  const guarded = openCircuitBreaker(options);
  return {
    claim: async (mutation) => {
      const name = nameOf(store, ...identityIn(store, mutation));
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

/** As the store's own identity: records tell endpoints apart, DynamoDB's markers do not. */
function identityIn(
  store: ResponseCacheOptions['store'],
  { principal, endpoint, key }: Mutation,
): string[] {
  return store === 'record' ? [principal, endpoint, key] : [principal, key];
}
