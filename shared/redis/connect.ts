/**
 * Redis, as the composition roots put it in front of a store: what of `front.ts` is loaded
 * only when a first command is said.
 */

import { nowMs } from '../core/clock.ts';
import type { FastPath } from '../core/contract.ts';
import type { Config } from '../service/config.ts';
import type { Logger } from '../service/logger.ts';
import type { Meter } from '../service/metrics.ts';
import type { FastPathOptions } from './circuit-breaker.ts';
import { redisFastPath } from './claim-cache.ts';
import { createRedis, firstConnection } from './client.ts';
import type { IssuedPassword } from './credentials.ts';
import { cacheToken } from './elasticache-token.ts';
import { redisResponseCache } from './response-cache.ts';
import { UnfitRedisError } from './unfit.ts';

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
