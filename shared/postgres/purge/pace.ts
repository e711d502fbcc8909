import { monotonicMs } from '../../core/clock.ts';

/** What a loop knows after each batch. */
export interface Step {
  readonly rows: number;
  /** How long the batch took. */
  readonly busyMs: number;
  /** How much of the expired time it covered. */
  readonly spanSeconds: number;
  /** How much of it this loop still has to cover. */
  readonly leftSeconds: number;
}

/** How many milliseconds to pause after a batch. Made for one loop of one run. */
export type Pace = (step: Step) => number;

export const atFullSpeed: Pace = () => 0;

/** Half of the time is for what is denser, slower or not foreseen. */
const PLANNED_PART = 0.5;

/**
 * A batch, then three times as long nothing, if that is enough: claims go on next to
 * it as fast as without it, and a minute's worth of markers at 20,000 a second is
 * still gone within some seconds.
 */
const DUTY_MIN = 0.25;

/**
 * As slow as the time that is left allows, and without a pause when it is short.
 * Reckons in expired time and not in rows, which nobody has counted.
 */
export function paceByTime(remainingMs: () => number): Pace {
  let busyMs = 0;
  let spanSeconds = 0;
  return (step) => {
    busyMs += step.busyMs;
    spanSeconds += step.spanSeconds;
    if (step.leftSeconds <= 0 || spanSeconds <= 0) return 0;
    const neededMs = (busyMs / spanSeconds) * step.leftSeconds;
    const duty = Math.max(DUTY_MIN, neededMs / Math.max(1, remainingMs() * PLANNED_PART));
    return duty < 1 ? step.busyMs * (1 / duty - 1) : 0;
  };
}

/** No more than so many rows a second, on average over the run. */
export function paceByRate(rowsPerSecond: number): Pace {
  let dueMs = monotonicMs();
  return ({ rows, busyMs }) => {
    // A slow spell is not made up for by a burst.
    dueMs = Math.max(dueMs, monotonicMs() - busyMs) + (rows / rowsPerSecond) * 1000;
    return Math.max(0, dueMs - monotonicMs());
  };
}

/** A batch holds its locks for as long as a claim may have to wait for it. */
const BATCH_MS = { aim: 25, max: 50 };
const BATCH_ROWS_MIN = 1000;
const BATCH_ROWS_FIRST = 5000;

export function firstBatchRows(rowsMax: number): number {
  return Math.min(BATCH_ROWS_FIRST, rowsMax);
}

/** The size of the next batch, after one of `batchRows` that took so long. */
export function nextBatchRows(
  batchRows: number,
  { busyMs, isFull }: { readonly busyMs: number; readonly isFull: boolean },
  rowsMax: number,
): number {
  if (busyMs > BATCH_MS.max) {
    return Math.max(Math.min(BATCH_ROWS_MIN, rowsMax), Math.floor(batchRows / 2));
  }
  // A short batch says nothing about the time that a full one takes.
  if (busyMs < BATCH_MS.aim && isFull) return Math.min(rowsMax, batchRows * 2);
  return batchRows;
}
