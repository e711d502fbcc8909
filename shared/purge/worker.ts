import { monotonicMs } from '../clock.ts';
import type { SweepReport } from './sweep.ts';

/** One kind of row that expires. */
export interface Sweep {
  readonly name: string;
  run(remainingMs: () => number): Promise<SweepReport>;
}

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
}

export interface PurgeRun {
  readonly result: PurgeResult;
  readonly batchDurationsSeconds: readonly number[];
  readonly errors: readonly { readonly sweep: string; readonly error: unknown }[];
}

/** Less than this and the next batch might be cut off in its middle (safe, and wasted). */
const MARGIN_MS = 2000;

/**
 * Runs the sweeps one after the other, each with an equal part of the time that is
 * left, so that one with a backlog of months does not starve the others. One that
 * fails does not stop them either: the next run tries again.
 */
export async function runSweeps(
  sweeps: readonly Sweep[],
  workers: number,
  remainingMs: () => number,
): Promise<PurgeRun> {
  const reports: (Partial<SweepReport> & { name: string })[] = [];
  for (const [index, sweep] of sweeps.entries()) {
    const partMs = (remainingMs() - MARGIN_MS) / (sweeps.length - index);
    const endMs = monotonicMs() + partMs;
    const sweepMs = () => Math.min(endMs - monotonicMs(), remainingMs() - MARGIN_MS);
    const report = await sweep.run(sweepMs).catch((error: unknown) => ({ error }));
    reports.push({ name: sweep.name, ...report });
  }
  const errors = reports
    .filter(({ error }) => error !== undefined)
    .map(({ name, error }) => ({ sweep: name, error }));
  return {
    result: { ...summaryOf(reports, workers), failed: errors.map(({ sweep }) => sweep) },
    batchDurationsSeconds: reports.flatMap((report) => report.batchDurationsSeconds ?? []),
    errors,
  };
}

function summaryOf(
  reports: readonly Partial<SweepReport>[],
  workers: number,
): Omit<PurgeResult, 'failed'> {
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
