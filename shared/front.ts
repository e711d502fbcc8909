import type { Config } from './config.ts';
import type { FrontKind, RedisFront } from './front-redis.ts';
import { type FastPath, NO_FAST_PATH } from './idempotency/contract.ts';
import type { Logger } from './logger.ts';
import type { Meter } from './metrics.ts';

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
  let opening: Promise<RedisFront> | undefined;
  const open = () => {
    opening ??= import('./front-redis.ts').then(({ openRedisFront }) =>
      openRedisFront(redisUrl, config, logger, meter),
    );
    return opening;
  };
  return {
    fastPath: (kind) => lazily(async () => (await open()).make(kind)),
    ping: async () => (await open()).ping(),
    close: async () => (await opening)?.close(),
  };
}

function lazily(make: () => Promise<FastPath>): FastPath {
  let made: Promise<FastPath> | undefined;
  const get = () => {
    made ??= make();
    return made;
  };
  return {
    claim: async (mutation) => (await get()).claim(mutation),
    publish: async (mutation, response, expiresAtMs) =>
      (await get()).publish(mutation, response, expiresAtMs),
    release: async (mutation) => (await get()).release(mutation),
  };
}
