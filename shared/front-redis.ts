/**
 * Redis, as the composition roots put it in front of a store: what of `front.ts` is loaded
 * only when a first command is said.
 */
import { cacheToken } from './aws/cache-token.ts';
import { nowMs } from './clock.ts';
import type { Config } from './config.ts';
import type { FastPath } from './idempotency/contract.ts';
import type { Logger } from './logger.ts';
import type { Meter } from './metrics.ts';
import { createRedis, firstConnection } from './redis/client.ts';
import type { IssuedPassword } from './redis/credentials.ts';
import { redisFastPath } from './redis/fast-path.ts';
import type { FastPathOptions } from './redis/guard.ts';
import { redisResponseCache } from './redis/response-cache.ts';
import { UnfitRedisError } from './redis/unfit.ts';

/** What can stand in front of a store: a claim and its response, or completed responses only. */
export type FrontKind = 'claims' | 'record' | 'dynamo';

export interface RedisFront {
  make(kind: FrontKind): FastPath;
  /** Rejects when it cannot be used now. */
  ping(): Promise<unknown>;
  close(): void;
}

export function openRedisFront(
  redisUrl: string,
  config: Config,
  logger: Logger,
  meter: Meter,
): RedisFront {
  const { redisConnectBudgetMs: connectBudgetMs } = config;
  const redis = createRedis({
    url: redisUrl,
    mode: config.redisMode,
    password: config.redisAuth === 'iam' ? issuedTokens(redisUrl, config) : undefined,
    commandTimeoutMs: config.redisCommandTimeoutMs,
    // The text alone: ioredis hangs the command on its error, and with it password or token.
    onError: (error) => logger.debug('Redis connection', { error: String(error) }),
  });
  const said = new Set<string>();
  const onFailure: FastPathOptions['onFailure'] = (step, error) => {
    meter.fastPathFailure(step);
    const line = { step, error: String(error) };
    if (error instanceof UnfitRedisError) {
      if (said.has(error.message)) return;
      said.add(error.message);
      logger.error(
        'The fast path is off until somebody mends Redis; requests go on without it',
        line,
      );
    } else {
      logger.warn('The fast path failed; the request went on without it', line);
    }
  };
  const options: FastPathOptions = {
    redis,
    namespace: config.namespace ?? '',
    epoch: config.cacheEpoch,
    connectBudgetMs,
    coolDownMs: config.redisCoolDownMs,
    onFailure,
  };
  return {
    make: (kind) =>
      kind === 'claims'
        ? redisFastPath({ ...options, longestRequestMs: config.requestTimeoutMs })
        : redisResponseCache({ ...options, store: kind }),
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
