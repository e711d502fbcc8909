/** The composition root of the purge, scheduled and by hand, apart from the requests': it needs none of their parts. */
import type { Context } from 'aws-lambda';
import { createDatabase, type Queryable, statementsOn } from '../postgres/pool.ts';
import { paceByTime } from '../postgres/purge/pace.ts';
import { PURGE_NEEDS } from '../postgres/purge/retentions.ts';
import { readShare } from '../postgres/purge/share.ts';
import { type Course, listSweeps, type SweepList } from '../postgres/purge/sweeps.ts';
import { type PurgeResult, type PurgeRun, runPass } from '../postgres/purge/worker.ts';
import { rdsToken } from '../postgres/rds-token.ts';
import { createLogger } from './logger.ts';
import { createMeter } from './metrics.ts';
import type { Environment } from './settings/component.ts';
import type { PurgeSettings } from './settings/postgres.ts';
import { REQUEST_TIMEOUT_MS } from './settings/requests.ts';
import { processEnvironment, readSettings } from './settings.ts';

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
  settings: PurgeSettings,
  connections: number,
  onIdleError: (error: Error) => void,
): PurgeTools {
  const { url, tokenRegion, connectTimeoutMs, markerRetentionMs, recordRetentionMs, marginMs } =
    settings;
  const { pool, addToGreeting } = createDatabase({
    connectionString: url,
    password: tokenRegion === undefined ? undefined : rdsToken(url, tokenRegion),
    max: connections,
    pipeline: false,
    connectTimeoutMs,
    onIdleError,
  });
  addToGreeting(PURGE_NEEDS);
  const kept = { markerRetentionMs, recordRetentionMs, marginMs };
  const db = statementsOn(pool);
  return {
    pass: (course, remainingMs) => runPass(pool, kept, course, remainingMs),
    list: () => listSweeps(db, kept),
    db,
    close: () => pool.end(),
  };
}

/** The scheduled purge, on connections and a role of its own. */
export function createPurge(environment: Environment = processEnvironment()): Purge {
  const { service, purge: settings } = readSettings('purge', environment);
  const logger = createLogger('backstop-purge');
  const meter = createMeter('backstop-purge', service.stage);
  const purge = openPurge(settings, settings.loops, (error) =>
    logger.warn('An idle database connection was lost', { error: String(error) }),
  );
  return {
    run: async ({ getRemainingTimeInMillis }, event) => {
      const { result, batchDurationsSeconds, errors } = await purge.pass(
        {
          share: { ...readShare(event), loops: settings.loops },
          batchRowsMax: settings.batchRowsMax,
          createPace: paceByTime,
          onBatch: () => {},
        },
        getRemainingTimeInMillis ?? (() => REQUEST_TIMEOUT_MS),
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
  sharedPurge ??= createPurge();
  return sharedPurge;
}
