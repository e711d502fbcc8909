/** Redis as the roots put it in front of a store: loaded late, its failures counted and logged. */
import { NO_CACHE } from '../core/contract.ts';
import type { RedisCaches, RedisConnectOptions } from '../redis/connect.ts';
import { keepSuccess, lazyCache } from '../redis/lazy.ts';
import { UnfitRedisError } from '../redis/unfit.ts';
import type { Logger } from './logger.ts';
import type { Meter } from './metrics.ts';
import type { RedisSettings } from './settings/redis.ts';
import { REQUEST_TIMEOUT_MS } from './settings/requests.ts';

const NO_REDIS: RedisCaches = {
  cache: () => NO_CACHE,
  ping: async () => {
    throw new Error('REDIS_URL is not set');
  },
  close: async () => {},
};

export function openCaches(
  settings: RedisSettings | undefined,
  logger: Logger,
  meter: Meter,
): RedisCaches {
  if (settings === undefined) return NO_REDIS;
  let isOpened = false;
  const open = keepSuccess(async () => {
    const { connectRedis } = await import('../redis/connect.ts');
    isOpened = true;
    return connectRedis({
      ...settings,
      longestRequestMs: REQUEST_TIMEOUT_MS,
      onFailure: reportFailures(logger, meter),
      // The text alone: ioredis hangs the command on its error, and with it password or token.
      onConnectionError: (error) => logger.debug('Redis connection', { error: String(error) }),
    });
  });
  const onLoadFailure = (error: unknown) => {
    meter.cacheFailure('claim');
    const line = { error: String(error) };
    logger.error('The Redis client was not loaded; the request goes on without it', line);
  };
  return {
    cache: (kind) => lazyCache(async () => (await open()).cache(kind), onLoadFailure),
    ping: async () => (await open()).ping(),
    close: async () => {
      if (isOpened) await (await open()).close();
    },
  };
}

/** What somebody has to mend is logged once, as an ERROR. */
function reportFailures(logger: Logger, meter: Meter): RedisConnectOptions['onFailure'] {
  const logged = new Set<string>();
  return (step, error) => {
    meter.cacheFailure(step);
    const line = { step, error: String(error) };
    if (!(error instanceof UnfitRedisError)) {
      logger.warn('The cache failed; the request went on without it', line);
    } else if (!logged.has(error.message)) {
      logged.add(error.message);
      logger.error('The cache is off until somebody mends Redis; requests go on without it', line);
    }
  };
}
