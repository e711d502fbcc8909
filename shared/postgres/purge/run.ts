/** One run of the purge, of the scheduled one and of the command: every table that expires. */
import type { Pool } from 'pg';
import { monotonicMs } from '../../core/clock.ts';
import { type Queryable, statementsOn } from '../pool.ts';
import type { SweepPlan, SweepReport } from './sweep.ts';
import { listSweeps, type Retention, type RetentionSettings, type Sweep } from './tables.ts';

export interface PurgeResult {
  readonly rows: number;
  readonly batches: number;
  /** Nothing is left of what had expired at the beginning, not even what another holds. */
  readonly drained: boolean;
  /** By now, of all that is still there; 0 when nothing is, null when it could not be seen. */
  readonly oldestExpiredAgeSeconds: number | null;
  /** Exact up to some ten thousand, an estimate beyond; null when it could not be seen. */
  readonly leftRows: number | null;
  /** Of this run alone, while it was deleting, without the pauses. */
  readonly rowsPerSecond: number;
  /** How many rows expire in a second. */
  readonly arrivalPerSecond: number;
  /** Until the backlog is gone, if this worker alone goes on at its rate; null when never. */
  readonly secondsToDrain: number | null;
  /** The sweeps that failed, by name. */
  readonly failed: readonly string[];
  /** How long it kept the rows of each table, the margin not included, and who said so. */
  readonly retentions: readonly Retention[];
}

export interface PurgeRun {
  readonly result: PurgeResult;
  readonly batchDurationsSeconds: readonly number[];
  readonly errors: readonly { readonly sweep: string; readonly error: unknown }[];
}

/** Less than this and the next batch might be cut off in its middle (safe, and wasted). */
const MARGIN_MS = 2000;

/**
 * For the batch that is under way when a sweep's time is up, and for counting what is left: so
 * much of the margin, and of the sweep's own part a half, up to a limit.
 */
const LAST_STATEMENTS_MS = { margin: 1500, partMax: 5000 };

/** To read what was promised; nothing can be swept without it. */
const READ_MS_MAX = 5000;

/** Sweeps every table that expires, by the retentions that the database knows now. */
export async function runPurge(
  pool: Pool,
  settings: RetentionSettings,
  plan: SweepPlan,
): Promise<PurgeRun> {
  const readMs = Math.min(READ_MS_MAX, plan.remainingMs() - MARGIN_MS);
  const { sweeps, retentions } = await listSweeps(statementsWithin(pool, readMs), settings);
  const { result, ...run } = await runSweeps(pool, sweeps, plan);
  return { ...run, result: { ...result, retentions } };
}

/**
 * Runs the sweeps one after the other, each with an equal part of the time that is
 * left, so that one with a backlog of months does not starve the others. One that
 * fails does not stop them either, and neither does a table that somebody has locked or a
 * server that is silent: no statement is waited for beyond its sweep's part.
 */
export async function runSweeps(
  pool: Pool,
  sweeps: readonly Omit<Sweep, 'measure'>[],
  plan: SweepPlan,
): Promise<PurgeRun> {
  const reports: Report[] = [];
  for (const [index, sweep] of sweeps.entries()) {
    const partMs = (plan.remainingMs() - MARGIN_MS) / (sweeps.length - index);
    const endMonotonicMs =
      monotonicMs() + partMs - Math.min(partMs / 2, LAST_STATEMENTS_MS.partMax);
    const remainingMs = () =>
      Math.min(endMonotonicMs - monotonicMs(), plan.remainingMs() - MARGIN_MS);
    const deleted = { rows: 0, batchDurationsSeconds: [] as number[] };
    const onBatch = (rows: number, seconds: number) => {
      deleted.rows += rows;
      deleted.batchDurationsSeconds.push(seconds);
      plan.onBatch(rows, seconds);
    };
    const measured = await sweep
      .run(statementsWithin(pool, partMs), { ...plan, remainingMs, onBatch })
      .catch((error: unknown) => ({ error }));
    reports.push({ sweep: sweep.name, ...measured, ...deleted });
  }
  const errors = reports
    .filter(({ error }) => error !== undefined)
    .map(({ sweep, error }) => ({ sweep, error: explained(error) }));
  return {
    result: {
      ...summaryOf(reports, plan.concurrency),
      failed: errors.map(({ sweep }) => sweep),
      retentions: [],
    },
    batchDurationsSeconds: reports.flatMap((report) => report.batchDurationsSeconds),
    errors,
  };
}

/** Statements of which none outlasts this time and the last ones after it. */
function statementsWithin(pool: Pool, ms: number): Queryable {
  const endMonotonicMs = monotonicMs() + Math.max(0, ms) + LAST_STATEMENTS_MS.margin;
  return statementsOn(pool, () => endMonotonicMs - monotonicMs());
}

/** What a driver reports that has waited long enough, the pool, and `statementsOn`. */
const GIVEN_UP =
  /^(?:Query read timeout|timeout exceeded when trying to connect|The time for statements)/;

/** Says what such a message means here. */
function explained(error: unknown): unknown {
  if (!(error instanceof Error) || !GIVEN_UP.test(error.message)) return error;
  return new Error(
    'The database did not answer within the time of this sweep: it is away or very slow, or somebody has locked the table. What was deleted before stays deleted, and the next run goes on.',
    { cause: error },
  );
}

type Report = Partial<SweepReport> & {
  readonly sweep: string;
  readonly rows: number;
  readonly batchDurationsSeconds: readonly number[];
};

function summaryOf(reports: readonly Report[], concurrency: number) {
  const ages = reports.map((report) => report.oldestExpiredAgeSeconds);
  const lefts = reports.map((report) => report.leftRows);
  const drains = reports.map((report) => secondsToDrain(report, concurrency));
  return {
    rows: sum(reports.map(({ rows }) => rows)),
    batches: sum(reports.map(({ batchDurationsSeconds }) => batchDurationsSeconds.length)),
    drained: lefts.every((left) => left === 0),
    oldestExpiredAgeSeconds: allKnown(ages) ? Math.max(0, ...ages) : null,
    leftRows: allKnown(lefts) ? sum(lefts) : null,
    rowsPerSecond: sum(reports.map((report) => rowsPerSecond(report, concurrency))),
    arrivalPerSecond: sum(reports.map(({ arrivalPerSecond = 0 }) => arrivalPerSecond)),
    secondsToDrain: allKnown(drains) ? Math.max(0, ...drains) : null,
  };
}

/** Of all loops together: each batch is one loop's. */
function rowsPerSecond({ rows, batchDurationsSeconds }: Report, concurrency: number): number {
  const loops = Math.min(concurrency, batchDurationsSeconds.length);
  return rows === 0 ? 0 : (rows / sum(batchDurationsSeconds)) * loops;
}

/** Undefined when never: rows expire as fast as they are deleted, or faster. */
function secondsToDrain(report: Report, concurrency: number): number | undefined {
  const { leftRows, arrivalPerSecond = 0 } = report;
  if (leftRows === undefined || leftRows === 0) return leftRows;
  const gainPerSecond = rowsPerSecond(report, concurrency) - arrivalPerSecond;
  return gainPerSecond > 0 ? leftRows / gainPerSecond : undefined;
}

function allKnown(values: readonly (number | undefined)[]): values is readonly number[] {
  return !values.includes(undefined);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
