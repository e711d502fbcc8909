import { monotonicMs } from '../../core/clock.ts';

/** What a loop knows after each batch. */
export interface BatchCost {
  readonly rows: number;
  /** How long the batch took. */
  readonly busyMs: number;
  /** How much of the expired time it covered. */
  readonly spanSeconds: number;
  /** How much of it this loop still has to cover. */
  readonly leftSeconds: number;
}

/** How many milliseconds to pause after a batch. */
export type Throttle = (batch: BatchCost) => number;

export const noThrottle: Throttle = () => 0;

/** Half of the time is for rows that are denser, a slower server, or what nobody foresaw. */
const PLANNED_PART = 0.5;

/**
 * A batch, then a pause three times as long, if that is enough: claims go on next to it as fast
 * as without it, and a minute's worth of markers at 20,000 a second is still gone within seconds.
 */
const DUTY_MIN = 0.25;

/**
 * As slow as the time that is left allows, and without a pause when it is short. It plans in
 * expired time and not in rows, which nobody has counted. For one loop of one sweep.
 */
export function throttleByTime(remainingMs: () => number): Throttle {
  let busyMs = 0;
  let spanSeconds = 0;
  return (batch) => {
    busyMs += batch.busyMs;
    spanSeconds += batch.spanSeconds;
    if (batch.leftSeconds <= 0 || spanSeconds <= 0) return 0;
    const neededMs = (busyMs / spanSeconds) * batch.leftSeconds;
    const duty = Math.max(DUTY_MIN, neededMs / Math.max(1, remainingMs() * PLANNED_PART));
    return duty < 1 ? batch.busyMs * (1 / duty - 1) : 0;
  };
}

/** At most so many rows a second, on average, over all loops that share it. */
export function throttleByRate(rowsPerSecond: number): Throttle {
  let dueMs = monotonicMs();
  return ({ rows, busyMs }) => {
    // A burst does not make up for a slow spell.
    dueMs = Math.max(dueMs, monotonicMs() - busyMs) + (rows / rowsPerSecond) * 1000;
    return Math.max(0, dueMs - monotonicMs());
  };
}

/** A batch holds its locks for as long as a claim may have to wait for it. */
const BATCH_MS = { aim: 25, max: 50 };
const BATCH_ROWS_MIN = 1000;
export const BATCH_ROWS_FIRST = 5000;

/** The size of the next batch, after one of `batchRows` that took so long. */
export function nextBatchRows(
  batchRows: number,
  { busyMs, isFull }: { readonly busyMs: number; readonly isFull: boolean },
  rowsMax: number,
): number {
  if (busyMs > BATCH_MS.max) {
    return Math.max(Math.min(BATCH_ROWS_MIN, rowsMax), Math.floor(batchRows / 2));
  }
  // A short batch does not show how long a full one takes.
  return busyMs < BATCH_MS.aim && isFull ? Math.min(rowsMax, batchRows * 2) : batchRows;
}
