/**
 * Redis in front of a store that keeps its responses itself: a cache of completed
 * responses and nothing else. It holds no claim, so there is none to lose.
 */
import type { FastPath, Mutation } from '../core/contract.ts';
import { type FastPathOptions, insist, openGuard } from './circuit-breaker.ts';
import { firstConnection } from './client.ts';
import { decode, encodeCompleted } from './entries.ts';
import { entryNames } from './keys.ts';

export interface ResponseCacheOptions extends FastPathOptions {
  /** Whose responses these are; it decides what makes two requests the same. */
  readonly store: 'record' | 'dynamo';
}

/** @throws TypeError without a namespace. */
export function redisResponseCache(options: ResponseCacheOptions): FastPath {
  const { redis, store } = options;
  const nameOf = entryNames(options);
  const keyOf = (mutation: Mutation) => nameOf(store, ...identityIn(store, mutation));
  const attempt = openGuard(options);
  return {
    claim: async (mutation) => {
      const found = await attempt('claim', async () => {
        await firstConnection(redis, options.connectBudgetMs);
        return redis.get(keyOf(mutation));
      });
      const sight = found?.answer ? decode(found.answer) : undefined;
      return sight?.kind === 'completed' ? sight : { kind: 'unknown' };
    },
    publish: async (mutation, response, expiresAtMs) => {
      const completed = encodeCompleted(mutation.fingerprint, response, expiresAtMs);
      const command = () => redis.set(keyOf(mutation), completed, 'PXAT', Math.floor(expiresAtMs));
      await attempt('publish', () => insist(redis, command));
    },
    release: async () => {},
  };
}

/** As the store's own identity: records tell endpoints apart, DynamoDB's markers do not. */
function identityIn(
  store: ResponseCacheOptions['store'],
  { principal, endpoint, key }: Mutation,
): string[] {
  return store === 'record' ? [principal, endpoint, key] : [principal, key];
}
