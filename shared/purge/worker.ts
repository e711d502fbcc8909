import { monotonicMs } from '../clock.ts';
import {
  markerCutoff,
  oldestExpiredAgeSeconds,
  type Queryable,
  sweepMarkers,
} from './marker-sweep.ts';

export interface PurgeOptions {
  readonly db: Queryable;
  /** Retention and margin: how long a marker is kept from its creation on. */
  readonly keepMs: number;
  readonly batchRowsMax: number;
  /** How much longer this run may go on; asked before each batch. */
  remainingMs(): number;
}

export interface PurgeResult {
  readonly rows: number;
  readonly batches: number;
  /** Nothing that has expired is left, not even what another worker holds. */
  readonly drained: boolean;
  readonly oldestExpiredAgeSeconds: number;
  readonly batchDurationsSeconds: readonly number[];
}

/** Less than this and the next batch might be cut off in its middle (which is safe, and wasted). */
const MARGIN_MS = 2000;

/**
 * Deletes expired markers batch by batch until a batch comes back short or the time
 * is nearly up. Safe at any number at once, and killed at any moment.
 */
export async function purgeMarkers(options: PurgeOptions): Promise<PurgeResult> {
  const { db, keepMs, batchRowsMax } = options;
  const cutoff = await markerCutoff(db, keepMs);
  const batchDurationsSeconds: number[] = [];
  let rows = 0;
  // Back to the beginning in each run, so that what was committed late is found.
  let from = '-infinity';
  while (options.remainingMs() > MARGIN_MS) {
    const startedMs = monotonicMs();
    const batch = await sweepMarkers(db, { from, cutoff, limit: batchRowsMax });
    batchDurationsSeconds.push((monotonicMs() - startedMs) / 1000);
    rows += batch.rows;
    from = batch.upTo ?? from;
    if (batch.rows < batchRowsMax) break;
  }
  // A short batch alone proves nothing: rows that a peer has locked are skipped,
  // and are still there when it rolls back.
  const ageSeconds = await oldestExpiredAgeSeconds(db, keepMs);
  return {
    rows,
    batches: batchDurationsSeconds.length,
    drained: ageSeconds === 0,
    oldestExpiredAgeSeconds: ageSeconds,
    batchDurationsSeconds,
  };
}
