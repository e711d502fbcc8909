import { type FastPath, NO_FAST_PATH } from '../core/contract.ts';
import type { Config } from '../service/config.ts';
import type { Logger } from '../service/logger.ts';
import type { Meter } from '../service/metrics.ts';
import type { FrontKind } from './connect.ts';

/** Redis, as the composition roots put it in front of a store, or nothing. */
export interface Front {
  fastPath(kind: FrontKind): FastPath;
  /** Rejects when it cannot be used now. */
  ping(): Promise<unknown>;
  close(): Promise<void>;
}

/**
 * Loads nothing yet: the client takes as long to load as all the rest of a function, and a
 * function that only reads never needs it. See docs/adr/0010.
 */
export function openFront(config: Config, logger: Logger, meter: Meter): Front {
  const { redisUrl } = config;
  if (redisUrl === undefined) {
    const ping = async () => {
      throw new Error('REDIS_URL is not set');
    };
    return { fastPath: () => NO_FAST_PATH, ping, close: async () => {} };
  }
  let isOpened = false;
  const open = keepSuccess(async () => {
    const { openRedisFront } = await import('./connect.ts');
    isOpened = true;
    return openRedisFront(redisUrl, config, logger, meter);
  });
  const onFailure = (error: unknown) => {
    meter.fastPathFailure('claim');
    logger.error('The Redis client was not loaded; the request goes on without it', {
      error: String(error),
    });
  };
  return {
    fastPath: (kind) => lazily(async () => (await open()).make(kind), onFailure),
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

/** Never rejects: what cannot be made is left out of this step. */
function lazily(make: () => Promise<FastPath>, onFailure: (error: unknown) => void): FastPath {
  const made = keepSuccess(make);
  const get = () =>
    made().catch((error: unknown) => {
      onFailure(error);
      return NO_FAST_PATH;
    });
  return {
    claim: async (mutation) => (await get()).claim(mutation),
    publish: async (mutation, response, expiresAtMs) =>
      (await get()).publish(mutation, response, expiresAtMs),
    release: async (mutation) => (await get()).release(mutation),
  };
}
