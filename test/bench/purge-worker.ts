import type pg from 'pg';
import { markerTable } from '../../shared/postgres/purge/expiring-table.ts';
import { paceByTime } from '../../shared/postgres/purge/pace.ts';
import { sweepExpired } from '../../shared/postgres/purge/sweep.ts';

/** One scheduled worker alone, with so much time, at the pace that it has then. Answers the rows. */
export async function purgeAtItsPace(
  client: pg.Client,
  keepMs: number,
  invocationMs: number,
): Promise<number> {
  const endMs = performance.now() + invocationMs;
  const remainingMs = () => endMs - performance.now();
  const { rows, error } = await sweepExpired({
    table: markerTable(client, { retentionMs: keepMs, marginMs: 0 }),
    share: { worker: 0, workers: 1, loops: 1 },
    batchRowsMax: 50_000,
    createPace: () => paceByTime(remainingMs),
    remainingMs,
    onBatch: () => {},
  });
  if (error !== undefined) throw error;
  return rows;
}
