import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { deleteAbandoned, sweepAbandoned } from '../../../shared/postgres/purge/abandoned.ts';
import { completedRecords } from '../../../shared/postgres/purge/tables.ts';
import { createPurge } from '../../../shared/service/index.ts';
import { createTestDatabase, openSession, type TestDatabase } from '../../support/database.ts';
import { seenBlocked } from '../../support/waiting.ts';
import { purgePool, sum, sweep as sweepTable } from './support.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(() => db.sql('TRUNCATE idempotency_records'));

const HOUR_MS = 3_600_000;
const KEPT = { retentionMs: 48 * HOUR_MS, marginMs: 0 };

interface Seed {
  readonly name: string;
  readonly account?: string;
  readonly createdHours: number;
  /** undefined: in progress. */
  readonly completedHours?: number;
  /** How long the lease has been over; negative: still to go; null: missing. */
  readonly leaseOverHours?: number | null;
}

/** Times are hours before now. */
async function seed(...records: Seed[]): Promise<void> {
  for (const { name, account = 'a', createdHours, completedHours, leaseOverHours = 1 } of records) {
    const isCompleted = completedHours !== undefined;
    await db.sql(
      `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status, lease_owner,
                                        lease_expires_at, created_at, completed_at, response)
       SELECT $1, sha256('POST /x'), sha256($2::text::bytea), $2, $3, gen_random_uuid(),
              CASE WHEN $6 THEN now() - $4::float8 * interval '1 hour' END,
              now() - $5::float8 * interval '1 hour', now() - $7::float8 * interval '1 hour', $8`,
      [
        account,
        name,
        isCompleted ? 'completed' : 'in_progress',
        leaseOverHours,
        createdHours,
        !isCompleted && leaseOverHours !== null,
        completedHours ?? null,
        isCompleted ? Buffer.from('{}') : null,
      ],
    );
  }
}

async function left(): Promise<string[]> {
  const rows = await db.sql<{ fingerprint: string }>(
    'SELECT fingerprint FROM idempotency_records ORDER BY 1',
  );
  return rows.map(({ fingerprint }) => fingerprint);
}

const connections = (options = '') => purgePool(db, 2, options);

async function sweep(pool = connections(), batchRowsMax = 500) {
  const table = completedRecords(pool, KEPT);
  const completed = await sweepTable(pool, { table, batchRowsMax });
  expect(completed.error).toBeUndefined();
  const abandonedRows: number[] = [];
  const abandoned = await sweepAbandoned(pool, KEPT, {
    remainingMs: () => 10_000,
    onBatch: (rows) => abandonedRows.push(rows),
  });
  const oldestSeconds = Math.max(
    completed.oldestExpiredAgeSeconds ?? Number.NaN,
    abandoned.oldestExpiredAgeSeconds ?? Number.NaN,
  );
  return {
    completed: completed.rows,
    batches: completed.batchRows.length,
    abandoned: sum(abandonedRows),
    oldestSeconds,
  };
}

const MINUTE = 1 / 60;

test('the sweep collects aged completed and abandoned records, and leaves those at the boundary', async () => {
  await seed(
    { name: 'completed, old', createdHours: 50, completedHours: 48 + MINUTE },
    { name: 'completed, young', createdHours: 50, completedHours: 48 - MINUTE },
    { name: 'abandoned, old', createdHours: 48 + MINUTE },
    { name: 'abandoned, young', createdHours: 48 - MINUTE },
  );
  expect(await sweep()).toMatchObject({ completed: 1, abandoned: 1, oldestSeconds: 0 });
  expect(await left()).toEqual(['abandoned, young', 'completed, young']);
  expect(await sweep()).toMatchObject({ completed: 0, abandoned: 0 });
});

test('a claim made three days ago and completed just now is kept', async () => {
  await seed({ name: 'stolen', createdHours: 72, completedHours: 0 });
  expect(await sweep()).toMatchObject({ completed: 0, abandoned: 0 });
  expect(await left()).toEqual(['stolen']);
});

test('every account is treated alike, in one delete', async () => {
  await seed(
    ...Array.from({ length: 20 }, (_, n) => ({
      name: `r${n}`,
      account: `account ${n}`,
      createdHours: 60,
      completedHours: 50,
    })),
  );
  expect(await sweep()).toMatchObject({ completed: 20, abandoned: 0 });
});

test('a backlog drains across the batch boundary', async () => {
  await db.sql(
    `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status, lease_owner, completed_at, response)
     SELECT 'a', sha256('x'), sha256(n::text::bytea), 'f', 'completed', gen_random_uuid(), now() - interval '3 days' + n * interval '1 ms', '{}'
       FROM generate_series(1, 1001) n`,
  );
  const pool = connections();
  expect(await sweep(pool, 500)).toMatchObject({ completed: 1001, batches: 3, oldestSeconds: 0 });
  expect(await sweep(pool, 500)).toMatchObject({ completed: 0, batches: 0 });
});

test('an expired record in progress, with a live lease or none, is kept (C92)', async () => {
  await seed(
    { name: 'live', createdHours: 72, leaseOverHours: -1 },
    { name: 'locked', createdHours: 72, leaseOverHours: null },
  );
  expect(await sweep()).toMatchObject({ completed: 0, abandoned: 0 });
  expect(await left()).toEqual(['live', 'locked']);
});

test('a row that a thief holds while the sweep waits for it lives (C91)', async () => {
  await seed({ name: 'stolen', createdHours: 72 });
  const thief = await openSession(db.apiUrl);
  await thief.query('BEGIN');
  await thief.query(
    `UPDATE idempotency_records SET lease_expires_at = clock_timestamp() + interval '30 s'`,
  );
  const sweeping = sweep();
  await seenBlocked(db);
  await thief.query('COMMIT');
  expect(await sweeping).toMatchObject({ completed: 0, abandoned: 0 });
  expect(await left()).toEqual(['stolen']);
});

test('a response lives whose publish holds the row while the sweep waits for it', async () => {
  await seed({ name: 'published', createdHours: 72 });
  const owner = await openSession(db.apiUrl);
  await owner.query('BEGIN');
  await owner.query('SELECT publish_record(id, lease_owner, $1) FROM idempotency_records', [
    Buffer.from('{}'),
  ]);
  const sweeping = sweep();
  await seenBlocked(db);
  await owner.query('COMMIT');
  expect(await sweeping).toMatchObject({ completed: 0, abandoned: 0 });
  expect(await left()).toEqual(['published']);
});

describe('two sweeps of abandoned records at once, under different plans', () => {
  test('one of both does the work, and nobody meets a deadlock', async () => {
    await db.sql(
      `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status, lease_owner, lease_expires_at, created_at)
       SELECT 'a', sha256('x'), sha256(n::text::bytea), 'f', 'in_progress', gen_random_uuid(), now() - interval '3 days',
              now() - interval '4 days' + (5000 - n) * interval '1 s'
         FROM generate_series(1, 5000) n`,
    );
    const pools = [
      connections('-c enable_seqscan=off'),
      connections('-c enable_indexscan=off -c enable_bitmapscan=off'),
    ];
    const sweeps = await Promise.all(pools.map((pool) => deleteAbandoned(pool, KEPT)));
    expect(sweeps.toSorted((a, b) => a - b)).toEqual([0, 5000]);
    expect(await left()).toEqual([]);
  });

  test('the sweep that comes second is stopped by the lock, and not by a wait', async () => {
    await seed({ name: 'abandoned', createdHours: 72 });
    const first = await openSession(db.purgeUrl);
    await first.query('BEGIN');
    const pool = connections();
    expect(await deleteAbandoned(first, KEPT)).toBe(1);
    expect(await deleteAbandoned(pool, KEPT)).toBe(0);
    await first.query('ROLLBACK');
    expect(await deleteAbandoned(pool, KEPT)).toBe(1);
  });
});

test('the scheduled purge sweeps both kinds of records, beside the markers', async () => {
  await seed(
    { name: 'completed, old', createdHours: 60, completedHours: 50 },
    { name: 'abandoned, old', createdHours: 60 },
    { name: 'completed, young', createdHours: 60, completedHours: 1 },
  );
  const purge = createPurge({ DATABASE_URL: db.apiUrl, PURGE_DATABASE_URL: db.purgeUrl });
  onTestFinished(() => purge.close());
  expect(await purge.run({})).toMatchObject({ rows: 2, drained: true, failed: [] });
  expect(await left()).toEqual(['completed, young']);
});
