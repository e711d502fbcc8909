import { type Cache, NO_CACHE } from '../core/contract.ts';
import type { CacheKind, RedisConnectOptions } from './connect.ts';

export interface LazyRedisOptions extends RedisConnectOptions {
  /** The client could not be loaded. This step goes on without it, and the next one loads it again. */
  onLoadFailure(error: unknown): void;
}

export interface LazyRedis {
  cache(kind: CacheKind): Cache;
  /** Rejects when Redis cannot be used now. */
  ping(): Promise<unknown>;
  close(): Promise<void>;
}

/**
 * Loads nothing yet: the client takes as long to load as all the rest of a function, and a
 * function that only reads never needs it. See docs/adr/0010.
 */
export function lazyRedis(options: LazyRedisOptions): LazyRedis {
  let isOpened = false;
  const open = keepSuccess(async () => {
    const { connectRedis } = await import('./connect.ts');
    isOpened = true;
    return connectRedis(options);
  });
  return {
    cache: (kind) => lazyCache(async () => (await open()).cache(kind), options.onLoadFailure),
    ping: async () => (await open()).ping(),
    close: async () => {
      if (isOpened) (await open()).close();
    },
  };
}

/** Makes it once. What failed is made anew the next time: a file that could not be read may be there then. */
function keepSuccess<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make().catch((error: unknown) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}

/** Never rejects: a cache that cannot be loaded is left out of this step. */
function lazyCache(load: () => Promise<Cache>, onFailure: (error: unknown) => void): Cache {
  const loaded = keepSuccess(load);
  const get = () =>
    loaded().catch((error: unknown) => {
      onFailure(error);
      return NO_CACHE;
    });
  return { claim: async (mutation) => (await get()).claim(mutation) };
}
