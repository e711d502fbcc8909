import { cacheToken } from './aws/cache-token.ts';
import { nowMs } from './clock.ts';
import type { Config } from './config.ts';
import type { Logger } from './logger.ts';
import type { Meter } from './metrics.ts';
import { createRedis, firstConnection } from './redis/client.ts';
import type { IssuedPassword } from './redis/credentials.ts';
import type { FastPathOptions } from './redis/guard.ts';

/** Redis, as the composition roots put it in front of a store. */
export interface Front {
  /** What every form of it has in common; undefined where there is no Redis. */
  readonly options: FastPathOptions | undefined;
  /** Rejects when it cannot be used now. */
  ping(): Promise<unknown>;
  close(): void;
}

export function openFront(config: Config, logger: Logger, meter: Meter): Front {
  const { redisUrl, redisConnectBudgetMs: connectBudgetMs } = config;
  if (redisUrl === undefined) {
    const ping = async () => {
      throw new Error('REDIS_URL is not set');
    };
    return { options: undefined, ping, close: () => {} };
  }
  const redis = createRedis({
    url: redisUrl,
    mode: config.redisMode,
    password: config.redisAuth === 'iam' ? issuedTokens(redisUrl, config) : undefined,
    commandTimeoutMs: config.redisCommandTimeoutMs,
    onError: (error) => logger.debug('Redis connection', error),
  });
  const onFailure: FastPathOptions['onFailure'] = (step, error) => {
    meter.fastPathFailure(step);
    const line = { step, error: String(error) };
    logger.warn('The fast path failed; the request went on without it', line);
  };
  return {
    options: { redis, connectBudgetMs, coolDownMs: config.redisCoolDownMs, onFailure },
    ping: async () => {
      await firstConnection(redis, connectBudgetMs);
      return redis.ping();
    },
    close: () => redis.disconnect(),
  };
}

/** Half of the 12 hours after which ElastiCache cuts a connection off. */
const RENEW_EVERY_MS = 6 * 3_600_000;

function issuedTokens(redisUrl: string, config: Config): IssuedPassword {
  const { awsRegion: region = '', redisCacheName: cacheName = '' } = config;
  const user = decodeURIComponent(new URL(redisUrl).username);
  return {
    issue: () =>
      cacheToken({ user, cacheName, region, credentials: config.awsCredentials(), nowMs: nowMs() }),
    renewEveryMs: RENEW_EVERY_MS,
  };
}
