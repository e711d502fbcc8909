import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicMs } from '../../core/clock.ts';
import { findHorizon, measureArrival, measureRemainder, type Slice } from './backlog.ts';
import { type Batch, deleteSpan, deleteUnlocked, findBatch, isWaitTooLong } from './batch.ts';
import type { ExpiringTable } from './expiring-table.ts';
import { firstBatchRows, nextBatchRows, type Pace } from './pace.ts';

/** Which part of the work is this one's: worker `worker` of `workers`, counted from 0. */
export interface Share {
  readonly worker: number;
  readonly workers: number;
  /** How many loops each worker runs, on a connection each. */
  readonly loops: number;
}

export interface SweepPlan {
  readonly table: ExpiringTable;
  readonly share: Share;
  readonly batchRowsMax: number;
  createPace(): Pace;
  /** How much longer the sweep may go on; asked before each batch. */
  remainingMs(): number;
  onBatch(rows: number): void;
}

export interface SweepReport {
  readonly rows: number;
  readonly batchDurationsSeconds: readonly number[];
  /**
   * What had expired when the sweep began and is still there; see `Remainder`. Undefined when it
   * could not be seen.
   */
  readonly leftRows: number | undefined;
  readonly oldestExpiredAgeSeconds: number | undefined;
  /** Of all the loops together, without their pauses. */
  readonly rowsPerSecond: number;
  /** How many rows expire in a second. */
  readonly arrivalPerSecond: number;
  /** What ended one of the loops early (the others went on), or kept it from seeing what is left. */
  readonly error: unknown;
}

/**
 * More slices than loops, so that who is done early can help, and so that two that
 * do not know of each other soon work far apart.
 */
const SLICES_PER_LOOP = 8;

/**
 * Deletes what has expired, batch by batch, until nothing is left or the time is up.
 * Safe at any number at once, coordinated or not, and killed at any moment.
 */
export async function sweepExpired(plan: SweepPlan): Promise<SweepReport> {
  const { table, share } = plan;
  const total = loopsOfAll(share);
  const { cutoff, slices } = await findHorizon(table, total * SLICES_PER_LOOP);
  const tally: Tally = { rows: 0, batchDurationsSeconds: [], rowsPerSecond: 0 };
  const outcomes = await Promise.allSettled(
    Array.from({ length: share.loops }, (_, index) => {
      const loop = share.worker * share.loops + index;
      return runLoop(plan, orderFor(slices, loop, total), tally);
    }),
  );
  // A short batch alone proves nothing: rows that another has locked are skipped,
  // and are still there when it rolls back.
  const unseen = slices.flatMap(({ from, until, isDrained, doubtedFrom }) => {
    const since = doubtedFrom ?? from;
    return isDrained && doubtedFrom === undefined ? [] : [{ since, until }];
  });
  const loopError = outcomes.find((outcome) => outcome.status === 'rejected')?.reason;
  try {
    const remainder = await measureRemainder(table, cutoff, unseen);
    const arrivalPerSecond = await measureArrival(table, cutoff);
    return { ...tally, ...remainder, arrivalPerSecond, error: loopError };
  } catch (error) {
    // What was deleted counts, whatever became of the server or of our time since.
    return { ...tally, ...UNSEEN, arrivalPerSecond: 0, error: loopError ?? error };
  }
}

/** What is left, when that could not be seen. */
export const UNSEEN = { leftRows: undefined, oldestExpiredAgeSeconds: undefined };

/**
 * One's own slices in the order of time, then those of the others from their end: so
 * the one who helps and the one who is helped meet once, and not at every slice. Each
 * begins with another neighbour: to look through a slice that its owner has drained
 * costs the first who does it half as much as the deletes, and those after him nothing.
 */
export function orderFor<S>(slices: readonly S[], loop: number, loops: number): S[] {
  const edge = (index: number) => Math.floor((slices.length * index) / loops);
  const ownOf = (index: number) => slices.slice(edge(index), edge(index + 1));
  const neighbours = Array.from({ length: loops - 1 }, (_, index) => (loop + 1 + index) % loops);
  return [...ownOf(loop), ...neighbours.flatMap((index) => ownOf(index).reverse())];
}

/** What the loops of a sweep add up to. */
interface Tally {
  rows: number;
  readonly batchDurationsSeconds: number[];
  rowsPerSecond: number;
}

async function runLoop(plan: SweepPlan, queue: Slice[], tally: Tally): Promise<void> {
  const pace = plan.createPace();
  const own = { rows: 0, busyMs: 0 };
  let batchRows = firstBatchRows(plan.batchRowsMax);
  let refusals = 0;
  try {
    for (let slice = nextSlice(queue); slice; slice = nextSlice(queue)) {
      if (plan.remainingMs() <= 0) return;
      const startedMs = monotonicMs();
      const done = await sweepBatch(plan.table, slice, batchRows);
      if (done === 'drained') continue;
      if (done === 'refused') {
        // Another purge is at work there: there is other work, and then another look.
        queue.push(...queue.splice(0, 1));
        if (++refusals >= queue.length) await pauseFor(refusedPauseMs(refusals), plan);
        continue;
      }
      const { rows, batch } = done;
      const busyMs = monotonicMs() - startedMs;
      refusals = 0;
      own.rows += rows;
      own.busyMs += busyMs;
      tally.rows += rows;
      tally.batchDurationsSeconds.push(busyMs / 1000);
      plan.onBatch(rows);
      batchRows = nextBatchRows(batchRows, { busyMs, isFull: batch.isFull }, plan.batchRowsMax);
      const leftSeconds = (batch.secondsAfter + secondsBehind(queue)) / loopsOfAll(plan.share);
      await pauseFor(pace({ rows, busyMs, spanSeconds: batch.seconds, leftSeconds }), plan);
    }
  } finally {
    if (own.busyMs > 0) tally.rowsPerSecond += (own.rows / own.busyMs) * 1000;
  }
}

type Swept = 'drained' | 'refused' | { readonly rows: number; readonly batch: Batch };

/** One batch of a slice, and its mark put forward. */
async function sweepBatch(table: ExpiringTable, slice: Slice, batchRows: number): Promise<Swept> {
  const batch = await findBatch(table, { since: slice.from, until: slice.until }, batchRows);
  if (batch === undefined) {
    slice.isDrained = true;
    return 'drained';
  }
  if (!batch.isInstant && !slice.isContended) {
    try {
      const rows = await deleteSpan(table, batch);
      if (rows === 0) return 'refused';
      slice.from = batch.until;
      slice.isDrained = batch.secondsAfter <= 0;
      return { rows, batch };
    } catch (error) {
      if (!isWaitTooLong(error)) throw error;
      slice.isContended = true;
    }
  }
  const rows = await deleteUnlocked(table, batch, batchRows);
  slice.doubtedFrom ??= batch.since;
  // There may be more of an instant, which the mark cannot cut in two.
  const isMore = batch.isInstant && rows === batchRows;
  slice.from = isMore ? batch.since : batch.until;
  slice.isDrained = !isMore && batch.secondsAfter <= 0;
  return { rows, batch };
}

function nextSlice(queue: Slice[]): Slice | undefined {
  while (queue[0]?.isDrained) queue.shift();
  return queue[0];
}

function secondsBehind([, ...slices]: readonly Slice[]): number {
  const waiting = slices.filter(({ isDrained }) => !isDrained);
  return waiting.reduce((sum, { seconds }) => sum + seconds, 0);
}

function loopsOfAll({ workers, loops }: Share): number {
  return workers * loops;
}

/** A batch of the other's takes some 30 ms; one that takes much longer is not asked for at that rate. */
function refusedPauseMs(refusals: number): number {
  return Math.min(320, 10 * refusals) * (0.5 + Math.random());
}

async function pauseFor(ms: number, { remainingMs }: SweepPlan): Promise<void> {
  if (ms > 0) await sleep(Math.max(0, Math.min(ms, remainingMs())));
}
