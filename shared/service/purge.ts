/** The composition root of the purge, apart from the requests': it needs none of their parts. */
import type { Context } from 'aws-lambda';
import { createDatabase, type Database } from '../postgres/pool.ts';
import { type PurgeResult, runPurge } from '../postgres/purge/run.ts';
import { PURGE_NEEDS } from '../postgres/purge/tables.ts';
import { throttleByTime } from '../postgres/purge/throttle.ts';
import { rdsToken } from '../postgres/rds-token.ts';
import { createLogger } from './logger.ts';
import { createMeter } from './metrics.ts';
import type { Environment } from './settings/component.ts';
import type { PurgeSettings } from './settings/postgres.ts';
import { REQUEST_TIMEOUT_MS } from './settings/requests.ts';
import { processEnvironment, readSettings } from './settings.ts';

export type { PurgeResult };

export interface Purge {
  /** One run, until all is drained or the time is nearly up. Any number may run at once. */
  run(context: Pick<Partial<Context>, 'getRemainingTimeInMillis'>): Promise<PurgeResult>;
  close(): Promise<void>;
}

/**
 * The connections of `runPurge`, for the scheduled purge and for the command.
 *
 * @param connections how many at the most: one for each loop.
 */
export function openPurgePool(
  { url, tokenRegion, connectTimeoutMs }: PurgeSettings,
  connections: number,
  onIdleError: (error: Error) => void,
): Database['pool'] {
  const { pool, addConnectionCheck } = createDatabase({
    connectionString: url,
    password: tokenRegion === undefined ? undefined : rdsToken(url, tokenRegion),
    max: connections,
    pipeline: false,
    connectTimeoutMs,
    onIdleError,
  });
  addConnectionCheck(PURGE_NEEDS);
  return pool;
}

/** The scheduled purge, on connections and a role of its own. */
export function createPurge(environment: Environment = processEnvironment()): Purge {
  const { service, purge: settings } = readSettings('purge', environment);
  const logger = createLogger('backstop-purge');
  const meter = createMeter('backstop-purge', service.stage);
  const pool = openPurgePool(settings, settings.loops, (error) =>
    logger.warn('An idle database connection was lost', { error: String(error) }),
  );
  return {
    run: async ({ getRemainingTimeInMillis = () => REQUEST_TIMEOUT_MS }) => {
      const { result, batchDurationsSeconds, errors } = await runPurge(pool, settings, {
        concurrency: settings.loops,
        batchRowsMax: settings.batchRowsMax,
        createThrottle: throttleByTime,
        remainingMs: getRemainingTimeInMillis,
        onBatch: () => {},
      });
      for (const { sweep, error } of errors) {
        logger.error('A sweep of the purge failed; the next run tries again', {
          sweep,
          error: error as Error,
        });
      }
      meter.cleanup({ ...result, batchDurationsSeconds });
      logger.info('purge', { ...result });
      return result;
    },
    close: () => pool.end(),
  };
}

let sharedPurge: Purge | undefined;

/** The purge of this process, from its environment. */
export function deployedPurge(): Purge {
  sharedPurge ??= createPurge();
  return sharedPurge;
}
