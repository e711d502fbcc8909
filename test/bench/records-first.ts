/** The first request under a record, against the unprotected mutation and against a marker. */
import pg from 'pg';
import { NO_FAST_PATH, type Store } from '../../shared/idempotency/contract.ts';
import { runOnce } from '../../shared/idempotency/once.ts';
import { markerStore } from '../../shared/postgres/marker-store.ts';
import { createDatabase } from '../../shared/postgres/pool.ts';
import { recordStore } from '../../shared/postgres/record-store.ts';
import type { Tx } from '../../shared/postgres/transaction.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import type { BenchRun } from './run.ts';
import { median, rounded, type Stage } from './stage.ts';

const SPEND =
  'UPDATE players SET coins = coins - 1, data_version = data_version + 1 WHERE user_id = $1 RETURNING coins';

export async function measureFirstRequests(stage: Stage, run: BenchRun) {
  const url = new URL(stage.url);
  url.username = 'backstop_api';
  const admin = await stage.connect();
  await admin.query(
    `INSERT INTO players (user_id, coins) VALUES ('first', 1000000000) ON CONFLICT DO NOTHING`,
  );
  const proxy = await startFaultProxy(url.href);
  proxy.delay({ toClient: 1 });
  const database = createDatabase({
    connectionString: proxy.url,
    max: 1,
    pipeline: true,
    connectTimeoutMs: 3000,
    onIdleError: () => {},
  });
  const plain = new pg.Client({ connectionString: proxy.url });
  await plain.connect();
  const variants = {
    naive: () => naive(plain),
    marker: () => once(markerStore({ database, retentionMs: 3_600_000 })),
    record: () => once(recordStore({ database, retentionMs: 172_800_000, leaseMs: 30_000 })),
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

async function naive(client: pg.Client): Promise<void> {
  await client.query('BEGIN');
  await client.query(SPEND, ['first']);
  await client.query('COMMIT');
}

async function once<Handle extends Tx>(store: Store<Handle>): Promise<void> {
  const mutation = {
    principal: 'first',
    key: crypto.randomUUID(),
    endpoint: 'POST /bench',
    fingerprint: '1:bench',
    token: crypto.randomUUID(),
    deadlineMs: Date.now() + 20_000,
  };
  const verdict = await runOnce(
    mutation,
    async (tx) => {
      await tx.query(SPEND, ['first']);
      return { statusCode: 200, body: '{}' };
    },
    { store, fastPath: NO_FAST_PATH, storedBodyBytesMax: 100_000 },
  );
  if (verdict.kind !== 'fresh') throw new Error(`the bench's request ended as ${verdict.kind}`);
}
