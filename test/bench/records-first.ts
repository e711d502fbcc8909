/** The first request under a record, against the unprotected mutation and against a marker. */
import pg from 'pg';
import { markerStore } from '../../shared/postgres/marker-store.ts';
import { recordStore } from '../../shared/postgres/record-store.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { type BenchPostgres, median, rounded } from './postgres.ts';
import type { BenchRun } from './run.ts';
import { openDatabase, spendOnce, spendUnprotected } from './spend.ts';

export async function measureFirstRequests(postgres: BenchPostgres, run: BenchRun) {
  const url = new URL(postgres.url);
  url.username = 'backstop_api';
  const admin = await postgres.connect();
  await admin.query(
    `INSERT INTO players (user_id, coins) VALUES ('first', 1000000000) ON CONFLICT DO NOTHING`,
  );
  const proxy = await startFaultProxy(url.href);
  proxy.delay({ toClient: 1 });
  const database = openDatabase(proxy.url);
  const plain = new pg.Client({ connectionString: proxy.url });
  await plain.connect();
  const variants = {
    naive: () => spendUnprotected(plain, 'first'),
    marker: () => spendOnce(markerStore({ database, retentionMs: 3_600_000 }), 'first'),
    record: () =>
      spendOnce(recordStore({ database, retentionMs: 172_800_000, leaseMs: 30_000 }), 'first'),
  };
  const times: Record<string, number[]> = { naive: [], marker: [], record: [] };
  const rounds = run.isQuick ? 30 : 300;
  for (let round = 0; round < rounds; round++) {
    for (const [name, request] of Object.entries(variants)) {
      const startedMs = performance.now();
      await request();
      times[name]?.push(performance.now() - startedMs);
    }
  }
  await plain.end();
  await database.pool.end();
  await proxy.close();
  const [naiveMs, markerMs, recordMs] = ['naive', 'marker', 'record'].map((name) =>
    median(times[name] ?? []),
  );
  run.progress(
    `first requests, 1 ms round trip: naive ${naiveMs} ms, marker without Redis ${markerMs} ms, record ${recordMs} ms`,
  );
  return {
    first_ratio_naive_1ms: rounded((recordMs ?? 0) / (naiveMs ?? 1)),
    first_ratio_marker_1ms: rounded((recordMs ?? 0) / (markerMs ?? 1)),
  };
}
