/** The composition root of the scheduled purge, apart from the requests': it needs none of their parts. */
import type { Context } from 'aws-lambda';
import { databasePassword } from './aws/database-token.ts';
import { type Config, loadConfig } from './config.ts';
import { createLogger } from './logger.ts';
import { createMeter } from './metrics.ts';
import { createDatabase, statementsOn } from './postgres/pool.ts';
import { type ExpiringTable, markerTable } from './purge/expiring-table.ts';
import { paceByTime } from './purge/pace.ts';
import { completedRecords, sweepAbandonedRecords } from './purge/record-sweeps.ts';
import { readShare } from './purge/share.ts';
import { type Share, sweepExpired } from './purge/sweep.ts';
import { type PurgeResult, runSweeps, type Sweep } from './purge/worker.ts';

export interface Purge {
  /**
   * One run, until all is drained or the time is nearly up.
   *
   * @param event `{ worker, workers }`, worker from 0; whatever says nothing of them is
   * worker 0 of 1. It decides what this run begins with, never what is deleted.
   * @throws Error when worker and workers cannot be.
   */
  run(
    context: Pick<Partial<Context>, 'getRemainingTimeInMillis'>,
    event?: unknown,
  ): Promise<PurgeAnswer>;
  close(): Promise<void>;
}

export type PurgeAnswer = PurgeResult;

/** The scheduled purge, on connections and a role of its own. */
export function createPurge(config: Config): Purge {
  const logger = createLogger('backstop-purge');
  const meter = createMeter('backstop-purge', config.stage);
  const { pool } = createDatabase({
    connectionString: config.purgeDatabaseUrl,
    password: databasePassword(config, config.purgeDatabaseUrl),
    max: config.purgeLoops,
    pipeline: false,
    connectTimeoutMs: config.databaseConnectTimeoutMs,
    onIdleError: (error) => logger.warn('An idle database connection was lost', error),
  });
  const db = statementsOn(pool);
  const recordKeepMs = config.recordRetentionMs + config.purgeMarginMs;
  const byAge = (name: string, table: ExpiringTable, share: Share): Sweep => ({
    name,
    run: (remainingMs) =>
      sweepExpired({
        table,
        share,
        batchRowsMax: config.purgeBatchRowsMax,
        createPace: () => paceByTime(remainingMs),
        remainingMs,
        onBatch: () => {},
      }),
  });
  const sweepsOf = (share: Share): Sweep[] => [
    byAge('markers', markerTable(db, config.purgeRetentionMs + config.purgeMarginMs), share),
    byAge('completed records', completedRecords(db, recordKeepMs), share),
    {
      name: 'abandoned records',
      run: (remainingMs) => sweepAbandonedRecords(db, recordKeepMs, remainingMs),
    },
  ];
  return {
    run: async ({ getRemainingTimeInMillis }, event) => {
      const share = { ...readShare(event), loops: config.purgeLoops };
      const { result, batchDurationsSeconds, errors } = await runSweeps(
        sweepsOf(share),
        share.workers,
        getRemainingTimeInMillis ?? (() => config.requestTimeoutMs),
      );
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
  sharedPurge ??= createPurge(loadConfig());
  return sharedPurge;
}
