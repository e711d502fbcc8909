import type { Pool } from 'pg';
import { monotonicMs } from '../../core/clock.ts';
import { statementsOn } from '../pool.ts';
import type { Retention } from './retentions.ts';
import type { SweepReport } from './sweep.ts';
import { type Course, type KeepSettings, listSweeps, type Sweep } from './sweeps.ts';

export interface PurgeResult {
  readonly rows: number;
  readonly batches: number;
  /** Nothing is left of what had expired at the beginning, not even what another holds. */
  readonly drained: boolean;
  /** By now, of all that is still there; 0 when nothing is, null when it could not be seen. */
  readonly oldestExpiredAgeSeconds: number | null;
  /** Exact up to some ten thousand, an estimate beyond; null when it could not be seen. */
  readonly leftRows: number | null;
  /** While it was deleting, without the pauses. */
  readonly rowsPerSecond: number;
  /** How many rows expire in a second. */
  readonly arrivalPerSecond: number;
  /** Until the backlog is gone, if all workers are as fast as this one; null when never. */
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
const LAST_WORDS_MS = { margin: 1500, partMax: 5000 };

/** To read what was promised; nothing can be swept without it. */
const READ_MS_MAX = 5000;

/** One pass over every table that expires, by the retentions that the database knows now. */
export async function runPass(
  pool: Pool,
  settings: KeepSettings,
  course: Course,
  remainingMs: () => number,
): Promise<PurgeRun> {
  const readMs = Math.min(READ_MS_MAX, remainingMs() - MARGIN_MS);
  const { sweeps, retentions } = await listSweeps(within(pool, readMs), settings);
  const { result, ...run } = await runSweeps(pool, sweeps, course, remainingMs);
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
  course: Course,
  remainingMs: () => number,
): Promise<PurgeRun> {
  const reports: (Partial<SweepReport> & { name: string })[] = [];
  for (const [index, sweep] of sweeps.entries()) {
    const partMs = (remainingMs() - MARGIN_MS) / (sweeps.length - index);
    const endMs = monotonicMs() + partMs - Math.min(partMs / 2, LAST_WORDS_MS.partMax);
    const sweepMs = () => Math.min(endMs - monotonicMs(), remainingMs() - MARGIN_MS);
    const report = await sweep
      .run(within(pool, partMs), course, sweepMs)
      .catch((error: unknown) => ({ error }));
    reports.push({ name: sweep.name, ...report });
  }
  const errors = reports
    .filter(({ error }) => error !== undefined)
    .map(({ name, error }) => ({ sweep: name, error: explained(error) }));
  const failed = errors.map(({ sweep }) => sweep);
  return {
    result: { ...summaryOf(reports, course.share.workers), failed, retentions: [] },
    batchDurationsSeconds: reports.flatMap((report) => report.batchDurationsSeconds ?? []),
    errors,
  };
}

/** Statements of which none outlasts this time and the last words after it. */
function within(pool: Pool, ms: number) {
  const endMs = monotonicMs() + Math.max(0, ms) + LAST_WORDS_MS.margin;
  return statementsOn(pool, () => endMs - monotonicMs());
}

/** A driver that has waited long enough says only that. */
function explained(error: unknown): unknown {
  if (!(error instanceof Error) || !GIVEN_UP.test(error.message)) return error;
  return new Error(
    'The database did not answer within the time of this sweep: it is away or very slow, or somebody has locked the table. What was deleted before stays deleted, and the next run goes on.',
    { cause: error },
  );
}

/** The driver's, the pool's and our own; see `statementsOn`. */
const GIVEN_UP =
  /^(?:Query read timeout|timeout exceeded when trying to connect|The time for statements)/;

function summaryOf(
  reports: readonly Partial<SweepReport>[],
  workers: number,
): Omit<PurgeResult, 'failed' | 'retentions'> {
  const ages = reports.map((report) => report.oldestExpiredAgeSeconds);
  const lefts = reports.map((report) => report.leftRows);
  const drains = reports.map((report) => secondsToDrain(report, workers));
  return {
    rows: sum(reports.map((report) => report.rows ?? 0)),
    batches: sum(reports.map((report) => report.batchDurationsSeconds?.length ?? 0)),
    drained: lefts.every((left) => left === 0),
    oldestExpiredAgeSeconds: allKnown(ages) ? Math.max(0, ...ages) : null,
    leftRows: allKnown(lefts) ? sum(lefts) : null,
    rowsPerSecond: sum(reports.map((report) => report.rowsPerSecond ?? 0)),
    arrivalPerSecond: sum(reports.map((report) => report.arrivalPerSecond ?? 0)),
    secondsToDrain: allKnown(drains) ? Math.max(0, ...drains) : null,
  };
}

/** Undefined when never: rows expire as fast as they are deleted, or faster. */
function secondsToDrain(report: Partial<SweepReport>, workers: number): number | undefined {
  const { leftRows, rowsPerSecond = 0, arrivalPerSecond = 0 } = report;
  if (leftRows === undefined || leftRows === 0) return leftRows;
  const gainPerSecond = rowsPerSecond * workers - arrivalPerSecond;
  return gainPerSecond > 0 ? leftRows / gainPerSecond : undefined;
}

function allKnown(values: readonly (number | undefined)[]): values is readonly number[] {
  return !values.includes(undefined);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
