import type pg from 'pg';
import type { ExpiringTable } from '../../shared/postgres/purge/batch.ts';
import { sweepExpired } from '../../shared/postgres/purge/sweep.ts';
import { markerTable } from '../../shared/postgres/purge/tables.ts';
import { noThrottle, throttleByTime } from '../../shared/postgres/purge/throttle.ts';

/** One scheduled worker alone, with so much time, as it throttles itself then. Answers the rows. */
export async function purgeThrottled(
  client: pg.Client,
  keepMs: number,
  invocationMs: number,
): Promise<number> {
  const endMs = performance.now() + invocationMs;
  let deleted = 0;
  const table = markerTable(client, { retentionMs: keepMs, marginMs: 0 });
  const { error } = await sweepExpired(table, {
    concurrency: 1,
    batchRowsMax: 50_000,
    createThrottle: throttleByTime,
    remainingMs: () => endMs - performance.now(),
    onBatch: (rows) => {
      deleted += rows;
    },
  });
  if (error !== undefined) throw error;
  return deleted;
}

/** One worker without pauses: its rows, and each of its batches. */
export async function purgeAtFullSpeed(table: ExpiringTable, batchRowsMax: number) {
  const batches: { readonly rows: number; readonly seconds: number }[] = [];
  const { error } = await sweepExpired(table, {
    concurrency: 1,
    batchRowsMax,
    createThrottle: () => noThrottle,
    remainingMs: () => Number.POSITIVE_INFINITY,
    onBatch: (rows, seconds) => batches.push({ rows, seconds }),
  });
  if (error !== undefined) throw error;
  return { rows: batches.reduce((total, { rows }) => total + rows, 0), batches };
}
