import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicMs } from '../../core/clock.ts';
import {
  findBacklog,
  measureArrival,
  measureRemainder,
  type Remainder,
  type Slice,
} from './backlog.ts';
import {
  type Batch,
  deleteSpan,
  deleteUnlocked,
  type ExpiringTable,
  findBatch,
  isWaitTooLong,
  secondsOf,
} from './batch.ts';
import { BATCH_ROWS_FIRST, nextBatchRows, type Throttle } from './throttle.ts';

export interface SweepPlan {
  /** How many loops at once, on a connection each. */
  readonly concurrency: number;
  readonly batchRowsMax: number;
  /** Called once for each loop. */
  createThrottle(remainingMs: () => number): Throttle;
  /** How much longer the sweep may go on; asked before each batch. */
  remainingMs(): number;
  /** Told of each batch once it has committed. */
  onBatch(rows: number, seconds: number): void;
}

/** What had expired when the sweep began and is still there. */
export interface SweepReport extends Remainder {
  /** How many rows expire in a second. */
  readonly arrivalPerSecond: number;
  /** What ended one of the loops early; the others went on. */
  readonly error?: unknown;
}

/** More slices than loops, since other processes may be at work on the same table. */
const SLICES_PER_LOOP = 16;

/**
 * Deletes what has expired, batch by batch, until nothing is left or the time is up.
 * Any number of sweeps may run at once, in any number of processes, and be killed at any
 * moment: none knows of the others. Each takes the slices in a random order, so that they
 * begin far apart, and passes by a batch that another one is deleting.
 */
export async function sweepExpired(table: ExpiringTable, plan: SweepPlan): Promise<SweepReport> {
  const backlog = await findBacklog(table, plan.concurrency * SLICES_PER_LOOP);
  const queue = shuffled(backlog.slices);
  const loops = await Promise.allSettled(
    Array.from({ length: plan.concurrency }, () => runLoop(table, queue, plan)),
  );
  const error = loops.find((loop) => loop.status === 'rejected')?.reason;
  try {
    const remainder = await measureRemainder(table, backlog);
    return { ...remainder, arrivalPerSecond: await measureArrival(table, backlog.cutoff), error };
  } catch (unmeasured) {
    throw error ?? unmeasured;
  }
}

/**
 * Finds a batch, deletes it and pauses, until the queue is empty or the time is up. The queue is
 * that of all loops of this sweep; a slice is not in it while one of them is at work there.
 */
async function runLoop(table: ExpiringTable, queue: Slice[], plan: SweepPlan): Promise<void> {
  const throttle = plan.createThrottle(plan.remainingMs);
  let batchRows = Math.min(BATCH_ROWS_FIRST, plan.batchRowsMax);
  let busyInARow = 0;
  for (let slice = queue.shift(); slice && plan.remainingMs() > 0; slice = queue.shift()) {
    const startedMonotonicMs = monotonicMs();
    let done: FinishedBatch | undefined;
    try {
      done = await sweepBatch(table, slice, batchRows);
    } finally {
      // Where another purge is at work, or a statement failed, somebody looks again at the end.
      if (!isDrained(slice)) queue.splice(done ? 0 : queue.length, 0, slice);
    }
    if (done) {
      busyInARow = 0;
      const { rows, batch } = done;
      const busyMs = monotonicMs() - startedMonotonicMs;
      plan.onBatch(rows, busyMs / 1000);
      batchRows = nextBatchRows(batchRows, { busyMs, isFull: batch.isFull }, plan.batchRowsMax);
      const leftSeconds = sum(queue.map(secondsOf)) / plan.concurrency;
      await pause(throttle({ rows, busyMs, spanSeconds: secondsOf(batch), leftSeconds }), plan);
    } else if (!isDrained(slice)) {
      await pause(busyPauseMs(++busyInARow), plan);
    }
  }
}

interface FinishedBatch {
  readonly batch: Batch;
  readonly rows: number;
}

/** Deletes one batch of a slice and moves its mark. Undefined: none is left, or another purge has it. */
async function sweepBatch(
  table: ExpiringTable,
  slice: Slice,
  batchRows: number,
): Promise<FinishedBatch | undefined> {
  const batch = await findBatch(table, slice, batchRows);
  if (batch === undefined) {
    slice.since = slice.until;
    return undefined;
  }
  slice.since = batch.since;
  if (!batch.isSingleTimestamp && !slice.hasForeignLocks) {
    try {
      const rows = await deleteSpan(table, batch);
      if (rows === 0) return undefined;
      slice.since = batch.until;
      return { batch, rows };
    } catch (error) {
      if (!isWaitTooLong(error)) throw error;
      slice.hasForeignLocks = true;
    }
  }
  slice.skippedFrom ??= batch.since;
  const rows = await deleteUnlocked(table, batch, batchRows);
  // The mark cannot cut a single timestamp in two: there may be more rows of it.
  if (!batch.isSingleTimestamp || rows < batchRows) slice.since = batch.until;
  return { batch, rows };
}

function isDrained({ since, until }: Slice): boolean {
  return since === until;
}

/** Another purge's batch takes some 30 ms; one that takes much longer is asked for less and less often. */
function busyPauseMs(busyInARow: number): number {
  return Math.min(320, 10 * busyInARow) * (0.5 + Math.random());
}

async function pause(ms: number, { remainingMs }: SweepPlan): Promise<void> {
  if (ms > 0) await sleep(Math.max(0, Math.min(ms, remainingMs())));
}

function shuffled<T>(items: readonly T[]): T[] {
  const placed = items.map((item) => ({ item, place: Math.random() }));
  return placed.sort((a, b) => a.place - b.place).map(({ item }) => item);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
