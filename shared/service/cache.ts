/** Redis as the roots put it in front of a store: its failures are counted and logged. */
import { type Cache, NO_CACHE } from '../core/contract.ts';
import { type LazyRedis, lazyRedis } from '../redis/lazy.ts';
import { UnfitRedisError } from '../redis/unfit.ts';
import type { Logger } from './logger.ts';
import type { Meter } from './metrics.ts';
import type { RedisSettings } from './settings/redis.ts';
import { REQUEST_TIMEOUT_MS } from './settings/requests.ts';

export function openRedis(
  settings: RedisSettings | undefined,
  logger: Logger,
  meter: Meter,
): LazyRedis {
  if (settings === undefined) return NO_REDIS;
  const logged = new Set<string>();
  return lazyRedis({
    ...settings,
    longestRequestMs: REQUEST_TIMEOUT_MS,
    onFailure: (step, error) => {
      meter.cacheFailure(step);
      const line = { step, error: String(error) };
      if (!(error instanceof UnfitRedisError)) {
        logger.warn('The fast path failed; the request went on without it', line);
      } else if (!logged.has(error.message)) {
        logged.add(error.message);
        logger.error(
          'The fast path is off until somebody mends Redis; requests go on without it',
          line,
        );
      }
    },
    onLoadFailure: (error) => {
      meter.cacheFailure('claim');
      logger.error('The Redis client was not loaded; the request goes on without it', {
        error: String(error),
      });
    },
    // The text alone: ioredis hangs the command on its error, and with it password or token.
    onConnectionError: (error) => logger.debug('Redis connection', { error: String(error) }),
  });
}

const NO_REDIS: LazyRedis = {
  cache: (): Cache => NO_CACHE,
  ping: async () => {
    throw new Error('REDIS_URL is not set');
  },
  close: async () => {},
};
