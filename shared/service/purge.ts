/** The composition root of the purge, scheduled and by hand, apart from the requests': it needs none of their parts. */
import type { Context } from 'aws-lambda';
import { createDatabase, type Queryable, statementsOn } from '../postgres/pool.ts';
import { paceByTime } from '../postgres/purge/pace.ts';
import { PURGE_NEEDS } from '../postgres/purge/retentions.ts';
import { readShare } from '../postgres/purge/share.ts';
import { type Course, listSweeps, type SweepList } from '../postgres/purge/sweeps.ts';
import { type PurgeResult, type PurgeRun, runPass } from '../postgres/purge/worker.ts';
import { databasePassword } from '../postgres/rds-token.ts';
import { type Config, loadConfig } from './config.ts';
import { createLogger } from './logger.ts';
import { createMeter } from './metrics.ts';

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

/** What the scheduled purge and the command have in common: connections, settings, and the passes. */
export interface PurgeTools {
  /** One pass over every table that expires. */
  pass(course: Course, remainingMs: () => number): Promise<PurgeRun>;
  /** What a pass would sweep now, for whoever wants to look and not to delete. */
  list(): Promise<SweepList>;
  /** For `Sweep.measure`. */
  readonly db: Queryable;
  close(): Promise<void>;
}

/** @param connections how many at the most: one for each loop. */
export function openPurge(
  config: Config,
  connections: number,
  onIdleError: (error: Error) => void,
): PurgeTools {
  const { pool, addToGreeting } = createDatabase({
    connectionString: config.purgeDatabaseUrl,
    password: databasePassword(config, config.purgeDatabaseUrl),
    max: connections,
    pipeline: false,
    connectTimeoutMs: config.databaseConnectTimeoutMs,
    onIdleError,
  });
  addToGreeting(PURGE_NEEDS);
  const settings = {
    markerRetentionMs: config.purgeRetentionMs,
    recordRetentionMs: config.recordRetentionMs,
    marginMs: config.purgeMarginMs,
  };
  const db = statementsOn(pool);
  return {
    pass: (course, remainingMs) => runPass(pool, settings, course, remainingMs),
    list: () => listSweeps(db, settings),
    db,
    close: () => pool.end(),
  };
}

/** The scheduled purge, on connections and a role of its own. */
export function createPurge(config: Config): Purge {
  const logger = createLogger('backstop-purge');
  const meter = createMeter('backstop-purge', config.stage);
  const purge = openPurge(config, config.purgeLoops, (error) =>
    logger.warn('An idle database connection was lost', { error: String(error) }),
  );
  return {
    run: async ({ getRemainingTimeInMillis }, event) => {
      const { result, batchDurationsSeconds, errors } = await purge.pass(
        {
          share: { ...readShare(event), loops: config.purgeLoops },
          batchRowsMax: config.purgeBatchRowsMax,
          createPace: paceByTime,
          onBatch: () => {},
        },
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
    close: purge.close,
  };
}

let sharedPurge: Purge | undefined;

/** The purge of this process, from its environment. */
export function deployedPurge(): Purge {
  sharedPurge ??= createPurge(loadConfig());
  return sharedPurge;
}
