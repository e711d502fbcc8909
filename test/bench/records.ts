/** Durable records: what a first request costs, how fast they are purged, and what an index is worth. */
import type pg from 'pg';
import { completedRecords } from '../../shared/postgres/purge/tables.ts';
import {
  type BenchPostgres,
  backendCpuSeconds,
  median,
  openBenchPostgres,
  rounded,
} from './postgres.ts';
import { purgeAtFullSpeed } from './purge-worker.ts';
import { measureFirstRequests } from './records-first.ts';
import type { BenchRun, Outcome } from './run.ts';

const HOUR_MS = 3_600_000;
const CLASSIC_BATCH_ROWS = 500;

/** As the migration makes them; see the ADR for why they are there, or are not. */
const INDEXES = {
  completed: `CREATE INDEX bench_completed ON idempotency_records (completed_at) WHERE completed_at IS NOT NULL`,
  inProgress: `CREATE INDEX bench_in_progress ON idempotency_records (created_at) WHERE status = 'in_progress'`,
} as const;

export async function bench(run: BenchRun): Promise<Record<'records', Outcome>> {
  const postgres = await openBenchPostgres();
  try {
    const admin = await postgres.connect();
    await dropIndexes(admin);
    const figures = {
      ...(await measurePurge(postgres, admin, run)),
      ...(await measureIndexes(postgres, admin, run)),
      ...(await measureFirstRequests(postgres, run)),
    };
    return { records: { figures, goals: { purge_cpu_ratio: { atLeast: 2.5 } } } };
  } finally {
    await postgres.close();
  }
}

async function dropIndexes(admin: pg.Client): Promise<void> {
  const { rows } = await admin.query<{ name: string }>(
    `SELECT indexrelid::regclass::text AS name FROM pg_index
      WHERE indrelid = 'idempotency_records'::regclass AND NOT indisunique`,
  );
  for (const { name } of rows) await admin.query(`DROP INDEX ${name}`);
}

/** Completed three to two days ago, with a receipt of some hundred bytes each. */
async function fill(admin: pg.Client, rows: number): Promise<void> {
  await admin.query('TRUNCATE idempotency_records');
  await admin.query(
    `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status, lease_owner,
                                      created_at, completed_at, response)
     SELECT 'account-' || n % 5000, sha256('POST /purchases'), sha256(n::text::bytea), '1:' || repeat('f', 43),
            'completed', gen_random_uuid(), at, at, convert_to(repeat('{"receipt":1}', 20), 'UTF8')
       FROM (SELECT n, now() - interval '3 days' + n * interval '1 day' / ${rows} AS at
               FROM generate_series(1, ${rows}) n) AS source`,
  );
  await admin.query('VACUUM ANALYZE idempotency_records');
  await admin.query('CHECKPOINT');
}

/** The purge as it is deployed, at full speed. */
async function purge(client: pg.Client): Promise<number> {
  const table = completedRecords(client, { retentionMs: 48 * HOUR_MS, marginMs: 0 });
  return (await purgeAtFullSpeed(table, 10_000)).rows;
}

/** What many a purge is. */
async function purgeClassic(client: pg.Client): Promise<number> {
  for (let total = 0; ; ) {
    const { rowCount } = await client.query(
      `DELETE FROM idempotency_records WHERE id IN (
         SELECT id FROM idempotency_records
          WHERE status = 'completed' AND completed_at < now() - interval '48 hours'
          ORDER BY completed_at LIMIT ${CLASSIC_BATCH_ROWS})`,
    );
    total += rowCount ?? 0;
    if ((rowCount ?? 0) < CLASSIC_BATCH_ROWS) return total;
  }
}

interface Cost {
  readonly cpuSeconds: number;
  readonly seconds: number;
}

async function costOf(
  postgres: BenchPostgres,
  work: (client: pg.Client) => Promise<unknown>,
): Promise<Cost> {
  const client = await postgres.connect();
  const cpuBefore = backendCpuSeconds(client);
  const startedMs = performance.now();
  await work(client);
  const seconds = (performance.now() - startedMs) / 1000;
  const cpuSeconds = backendCpuSeconds(client) - cpuBefore;
  await client.end();
  return { cpuSeconds, seconds };
}

async function measurePurge(postgres: BenchPostgres, admin: pg.Client, run: BenchRun) {
  const rows = run.isQuick ? 50_000 : 300_000;
  await admin.query(INDEXES.completed);
  const ratios: number[] = [];
  for (let round = 1; round <= (run.isQuick ? 1 : 3); round++) {
    const costs: number[] = [];
    for (const work of [purgeClassic, purge]) {
      await fill(admin, rows);
      const { cpuSeconds, seconds } = await costOf(postgres, work);
      costs.push(cpuSeconds);
      run.progress(
        `round ${round}, ${work.name}: ${Math.round(rows / seconds)} rows/s, ${Math.round(rows / cpuSeconds)} per CPU s`,
      );
    }
    ratios.push((costs[0] ?? 0) / (costs[1] ?? 1));
  }
  await dropIndexes(admin);
  return { purge_cpu_ratio: rounded(median(ratios)) };
}

/** Claim and publish, as the store does them, one after the other on one backend. */
async function claimAndPublish(client: pg.Client, count: number): Promise<void> {
  await client.query(`DO $$
    DECLARE claim record; owner uuid; n int;
    BEGIN
      FOR n IN 1..${count} LOOP
        owner := gen_random_uuid();
        SELECT * INTO claim FROM claim_record('account-' || n % 5000, sha256('POST /purchases'),
          sha256(owner::text::bytea), '1:' || repeat('f', 43), owner, 30000, now() + interval '1 hour');
        PERFORM publish_record(claim.id, owner, convert_to(repeat('{"receipt":1}', 20), 'UTF8'));
        COMMIT;
      END LOOP;
    END $$`);
}

/** The write cost that the partial indexes add, and the purge time that they save. */
async function measureIndexes(postgres: BenchPostgres, admin: pg.Client, run: BenchRun) {
  const count = run.isQuick ? 5_000 : 30_000;
  const figures: Record<string, number> = {};
  const write: Record<string, number[]> = { none: [], completed: [], both: [] };
  for (let round = 1; round <= (run.isQuick ? 1 : 3); round++) {
    for (const [name, indexes] of [
      ['none', []],
      ['completed', [INDEXES.completed]],
      ['both', [INDEXES.completed, INDEXES.inProgress]],
    ] as const) {
      await admin.query('TRUNCATE idempotency_records');
      await dropIndexes(admin);
      for (const index of indexes) await admin.query(index);
      const { cpuSeconds } = await costOf(postgres, (client) => claimAndPublish(client, count));
      write[name]?.push(cpuSeconds);
      run.progress(
        `round ${round}, claim and publish, index ${name}: ${rounded((cpuSeconds / count) * 1e6, 1)} us of CPU`,
      );
    }
  }
  const none = median(write['none'] ?? []);
  figures['index_completed_write_cpu_ratio'] = rounded(median(write['completed'] ?? []) / none);
  figures['index_both_write_cpu_ratio'] = rounded(median(write['both'] ?? []) / none);
  await dropIndexes(admin);
  for (const rows of run.isQuick ? [20_000] : [105_000, 1_000_000]) {
    await fill(admin, rows);
    const name = rows >= 1_000_000 ? '1m' : `${Math.round(rows / 1000)}k`;
    figures[`one_batch_ms_without_index_${name}`] = await millisecondsOfOneBatch(admin);
    figures[`abandoned_ms_without_index_${name}`] = await millisecondsOfAbandoned(admin);
    await admin.query(INDEXES.completed);
    await admin.query(INDEXES.inProgress);
    await admin.query('ANALYZE idempotency_records');
    figures[`one_batch_ms_with_index_${name}`] = await millisecondsOfOneBatch(admin);
    figures[`abandoned_ms_with_index_${name}`] = await millisecondsOfAbandoned(admin);
    await dropIndexes(admin);
    run.progress(`${rows} records: ${JSON.stringify(figures)}`);
  }
  return figures;
}

async function millisecondsOfOneBatch(admin: pg.Client): Promise<number> {
  return timed(
    admin,
    `DELETE FROM idempotency_records WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency_records WHERE completed_at < now() - interval '48 hours'
     ORDER BY completed_at LIMIT 5000))`,
  );
}

async function millisecondsOfAbandoned(admin: pg.Client): Promise<number> {
  return timed(
    admin,
    `DELETE FROM idempotency_records
    WHERE status = 'in_progress' AND lease_expires_at < clock_timestamp() AND created_at < now() - interval '48 hours'`,
  );
}

async function timed(admin: pg.Client, text: string): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < 3; n++) {
    await admin.query('BEGIN');
    const startedMs = performance.now();
    await admin.query(text);
    times.push(performance.now() - startedMs);
    await admin.query('ROLLBACK');
  }
  return rounded(median(times), 1);
}
