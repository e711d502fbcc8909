/**
 * The retention is the database's: the connections that claim raise it, every purge goes by it.
 * Kind 4 of what was found wrong: a purge that believed its own environment deleted live rows.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import {
  createDatabase,
  type Database,
  markerStore,
  migrate,
  recordStore,
} from '../../../shared/postgres/index.ts';
import { acquire } from '../../../shared/postgres/pool.ts';
import { deleteAbandoned } from '../../../shared/postgres/purge/abandoned.ts';
import { deleteSpan, deleteUnlocked } from '../../../shared/postgres/purge/batch.ts';
import { createPurge, type PurgeResult } from '../../../shared/service/index.ts';
import { createEmptyDatabase } from '../../infra/support/empty-database.ts';
import { createTestDatabase, openSession, type TestDatabase } from '../../support/database.ts';
import { startFaultProxy } from '../../support/fault-proxy.ts';
import { captureOutput } from '../../support/output.ts';
import { newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { takeCoin, testHandler } from '../../support/test-handler.ts';
import { insertMarkers, markersLeft, markersOn, purgePool } from './support.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(async () => {
  await db.sql('TRUNCATE player_mutation_idempotency, idempotency_records');
  await db.sql('UPDATE idempotency_retentions SET retention_ms = 0');
});

const HOUR_MS = 3_600_000;
const MARKERS = 'player_mutation_idempotency';
const RECORDS = 'idempotency_records';

async function promised(): Promise<Record<string, number>> {
  const rows = await db.sql<{ table_name: string; retention_ms: string }>(
    'SELECT * FROM idempotency_retentions',
  );
  return Object.fromEntries(rows.map((row) => [row.table_name, Number(row.retention_ms)]));
}

/** Where the row of the markers lies and which transaction wrote it: both change with a write. */
async function version(): Promise<unknown> {
  const [row] = await db.sql(
    `SELECT xmin::text, ctid::text FROM idempotency_retentions WHERE table_name = '${MARKERS}'`,
  );
  return row;
}

function openDatabase(url = db.apiUrl, max = 4): Database {
  const database = createDatabase({
    connectionString: url,
    max,
    pipeline: true,
    connectTimeoutMs: 10_000,
    onIdleError: () => {},
  });
  onTestFinished(() => database.pool.end());
  return database;
}

async function connect(database: Database): Promise<void> {
  (await acquire(database.pool, Date.now() + 20_000)).release();
}

function purge(environment: Record<string, string> = {}): Promise<PurgeResult> {
  const purge = createPurge({
    DATABASE_URL: db.apiUrl,
    PURGE_DATABASE_URL: db.purgeUrl,
    ...environment,
  });
  return purge.run({}).finally(() => purge.close());
}

/** A completed record, or one that was abandoned, so many hours ago. */
async function insertRecord(name: string, hours: number, state: 'completed' | 'in_progress') {
  await db.sql(
    `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status,
                                      lease_owner, lease_expires_at, created_at, completed_at, response)
     SELECT 'a', sha256('POST /x'), sha256($1::text::bytea), $1, $2, gen_random_uuid(),
            CASE $2 WHEN 'in_progress' THEN at END, at,
            CASE $2 WHEN 'completed' THEN at END, CASE $2 WHEN 'completed' THEN '{}'::bytea END
       FROM (SELECT now() - $3::float8 * interval '1 hour' AS at) t`,
    [name, state, hours],
  );
}

async function recordsLeft(): Promise<string[]> {
  const rows = await db.sql<{ name: string }>(
    'SELECT fingerprint AS name FROM idempotency_records ORDER BY 1',
  );
  return rows.map(({ name }) => name);
}

describe('a connection that claims (core 1)', () => {
  test('a connection raises what its stores promise, in the round trip of its connection check', async () => {
    const proxy = await startFaultProxy(db.apiUrl);
    onTestFinished(() => proxy.close());
    const none = openDatabase(proxy.url);
    await connect(none);
    const before = proxy.traffic.roundTrips;
    const database = openDatabase(proxy.url);
    markerStore({ database, retentionMs: 24 * HOUR_MS });
    recordStore({ database, retentionMs: 72 * HOUR_MS, leaseMs: 30_000 });
    await connect(database);
    expect(proxy.traffic.roundTrips - before).toBe(before);
    expect(await promised()).toEqual({ [MARKERS]: 24 * HOUR_MS, [RECORDS]: 72 * HOUR_MS });
  });

  test('a connection never lowers it, and the greatest of several stores counts', async () => {
    const database = openDatabase();
    for (const hours of [2, 24, 1]) markerStore({ database, retentionMs: hours * HOUR_MS });
    await connect(database);
    expect(await promised()).toMatchObject({ [MARKERS]: 24 * HOUR_MS });
    const other = openDatabase();
    markerStore({ database: other, retentionMs: HOUR_MS });
    await connect(other);
    expect(await promised()).toEqual({ [MARKERS]: 24 * HOUR_MS, [RECORDS]: 0 });
  });

  test('a connection writes nothing where it raises nothing', async () => {
    const first = openDatabase();
    markerStore({ database: first, retentionMs: HOUR_MS });
    await connect(first);
    const before = await version();
    const second = openDatabase();
    markerStore({ database: second, retentionMs: HOUR_MS });
    await connect(second);
    expect(await version()).toEqual(before);
  });

  test('a connection waits for nobody where it raises nothing', async () => {
    const first = openDatabase();
    markerStore({ database: first, retentionMs: HOUR_MS });
    await connect(first);
    // Somebody who raises just now, and a purge in the middle of a delete.
    const raising = await openSession(db.apiUrl);
    await raising.query('BEGIN');
    await raising.query('SELECT promise_retention($1, $2)', [MARKERS, 2 * HOUR_MS]);
    const second = openDatabase();
    markerStore({ database: second, retentionMs: HOUR_MS });
    await connect(second);
    await raising.query('ROLLBACK');
    expect(await promised()).toMatchObject({ [MARKERS]: HOUR_MS });
  });

  test('one of many connections that raise at once writes, and no other', async () => {
    const own = await createTestDatabase();
    onTestFinished(() => own.drop());
    // Fires for each row that is written, by whichever session.
    await own.sql('CREATE TABLE writes (by int)');
    await own.sql(`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
      $$ BEGIN INSERT INTO public.writes VALUES (pg_backend_pid()); RETURN NEW; END $$`);
    await own.sql(`CREATE TRIGGER note AFTER UPDATE ON idempotency_retentions
      FOR EACH ROW EXECUTE FUNCTION note()`);
    const databases = Array.from({ length: 8 }, () => openDatabase(own.apiUrl));
    for (const database of databases) markerStore({ database, retentionMs: HOUR_MS });
    await Promise.all(databases.map(connect));
    expect(await own.sql('SELECT FROM writes')).toHaveLength(1);
  });

  test('a connection that is open already raises it before the next claim of a store made later', async () => {
    const database = openDatabase(db.apiUrl, 1);
    markerStore({ database, retentionMs: HOUR_MS });
    const client = await acquire(database.pool, Date.now() + 20_000);
    client.release();
    const acquireAgain = async () => {
      const again = await acquire(database.pool, Date.now() + 20_000);
      again.release();
      expect(again).toBe(client);
    };
    markerStore({ database, retentionMs: 48 * HOUR_MS });
    expect(await promised()).toEqual({ [MARKERS]: HOUR_MS, [RECORDS]: 0 });
    await acquireAgain();
    expect(await promised()).toEqual({ [MARKERS]: 48 * HOUR_MS, [RECORDS]: 0 });
    recordStore({ database, retentionMs: 72 * HOUR_MS, leaseMs: 30_000 });
    await acquireAgain();
    expect(await promised()).toEqual({ [MARKERS]: 48 * HOUR_MS, [RECORDS]: 72 * HOUR_MS });
  });

  test('a connection that cannot raise it is refused, with what mends it', async () => {
    const database = openDatabase();
    markerStore({ database, retentionMs: HOUR_MS });
    await db.sql(`DELETE FROM idempotency_retentions WHERE table_name = '${MARKERS}'`);
    onTestFinished(async () => {
      await db.sql(`INSERT INTO idempotency_retentions VALUES ('${MARKERS}', 0)`);
    });
    await expect(connect(database)).rejects.toThrow(
      /the row of player_mutation_idempotency in idempotency_retentions is missing/,
    );
  });

  test('a retention that is no length of time is refused when the store is made', () => {
    const database = openDatabase();
    for (const retentionMs of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(() => markerStore({ database, retentionMs })).toThrow(RangeError);
    }
  });

  test("a role that claims has no other right on what was promised, and neither has the purge's", async () => {
    for (const url of [db.apiUrl, db.purgeUrl]) {
      const session = await openSession(url);
      await session.query('SELECT FROM idempotency_retentions');
      for (const refused of [
        'UPDATE idempotency_retentions SET retention_ms = 1',
        'DELETE FROM idempotency_retentions',
        `INSERT INTO idempotency_retentions VALUES ('mine', 1)`,
        'TRUNCATE idempotency_retentions',
      ]) {
        await expect(session.query(refused), refused).rejects.toMatchObject({ code: '42501' });
      }
    }
    const purge = await openSession(db.purgeUrl);
    await expect(purge.query(`SELECT promise_retention('${MARKERS}', 1)`)).rejects.toMatchObject({
      code: '42501',
    });
  });

  test('a connection is not led elsewhere by the search_path of its session', async () => {
    const session = await openSession(db.apiUrl);
    await session.query(
      'CREATE TEMP TABLE idempotency_retentions (table_name text, retention_ms bigint)',
    );
    await session.query('SET search_path = pg_temp, public');
    await session.query('SELECT public.promise_retention($1, $2)', [MARKERS, HOUR_MS]);
    expect(await promised()).toMatchObject({ [MARKERS]: HOUR_MS });
  });
});

describe('every purge goes by what was promised (core 1)', () => {
  test('the scheduled purge goes by the longer of its own retention and what was promised', async () => {
    const lines = captureOutput();
    await insertMarkers(db, 1, { ageMinutes: 120, prefix: 'two hours ' });
    await insertMarkers(db, 1, { ageMinutes: 25 * 60, prefix: 'a day ' });
    await insertRecord('completed, three days', 72, 'completed');
    await insertRecord('abandoned, three days', 72, 'in_progress');
    await db.sql(
      'UPDATE idempotency_retentions SET retention_ms = CASE table_name WHEN $1 THEN $2::bigint ELSE $3::bigint END',
      [MARKERS, 24 * HOUR_MS, 100 * HOUR_MS],
    );
    const answer = await purge();
    const retentions = [
      { table: MARKERS, retentionMs: 24 * HOUR_MS, source: 'promised' },
      { table: RECORDS, retentionMs: 100 * HOUR_MS, source: 'promised' },
    ];
    expect(answer).toMatchObject({ rows: 1, drained: true, failed: [], retentions });
    expect(lines.find(({ message }) => message === 'purge')).toMatchObject({ retentions });
    expect(await markersLeft(db)).toEqual(['two hours 1']);
    expect(await recordsLeft()).toEqual(['abandoned, three days', 'completed, three days']);
    const own = await purge({ BACKSTOP_PURGE_RETENTION_MS: String(72 * HOUR_MS) });
    expect(own.retentions[0]).toEqual({
      table: MARKERS,
      retentionMs: 72 * HOUR_MS,
      source: 'configured',
    });
  });

  test('a purge reads anew at each run what was promised', async () => {
    await insertMarkers(db, 1, { ageMinutes: 120 });
    await db.sql('UPDATE idempotency_retentions SET retention_ms = $1', [24 * HOUR_MS]);
    const worker = createPurge({ DATABASE_URL: db.apiUrl, PURGE_DATABASE_URL: db.purgeUrl });
    onTestFinished(() => worker.close());
    expect(await worker.run({})).toMatchObject({ rows: 0, drained: true });
    await db.sql('UPDATE idempotency_retentions SET retention_ms = 0');
    expect(await worker.run({})).toMatchObject({ rows: 1, drained: true });
  });

  test('a purge reports a table that this release does not know, and sweeps the others', async () => {
    await insertMarkers(db, 2);
    await insertRecord('completed, three days', 72, 'completed');
    await db.sql(`INSERT INTO idempotency_retentions VALUES ('idempotency_markers_weeks', 1)`);
    onTestFinished(async () => {
      await db.sql(
        `DELETE FROM idempotency_retentions WHERE table_name = 'idempotency_markers_weeks'`,
      );
    });
    expect(await purge()).toMatchObject({
      rows: 3,
      drained: false,
      leftRows: null,
      failed: ['idempotency_markers_weeks'],
    });
  });

  test('a purge reports a table whose row is gone, and leaves it alone', async () => {
    await insertMarkers(db, 2);
    await insertRecord('completed, three days', 72, 'completed');
    await db.sql(`DELETE FROM idempotency_retentions WHERE table_name = '${MARKERS}'`);
    onTestFinished(async () => {
      await db.sql(`INSERT INTO idempotency_retentions VALUES ('${MARKERS}', 0)`);
    });
    expect(await purge()).toMatchObject({ rows: 1, drained: false, failed: [MARKERS] });
    expect(await markersLeft(db)).toHaveLength(2);
  });

  test('a purge on a schema older than the promises deletes nothing, and says what to do', async () => {
    const old = await createTestDatabase();
    onTestFinished(() => old.drop());
    await old.sql('DROP TABLE idempotency_retentions CASCADE');
    await insertMarkers(old, 2);
    const worker = createPurge({ DATABASE_URL: old.apiUrl, PURGE_DATABASE_URL: old.purgeUrl });
    onTestFinished(() => worker.close());
    expect(await worker.run({})).toMatchObject({
      rows: 0,
      drained: false,
      failed: ['idempotency_retentions'],
    });
    expect(await markersLeft(old)).toHaveLength(2);
  });
});

describe('a retention that is raised while a purge runs (core 1)', () => {
  const span = { since: '0', until: '4102444800000000' };

  test('a raise waits for the delete that is under way, so that what is there afterwards stays', async () => {
    await insertMarkers(db, 3);
    const purging = await openSession(db.purgeUrl);
    await purging.query('BEGIN');
    expect(await deleteSpan(markersOn(purging), await spanOfAll())).toBe(3);
    const raising = await openSession(db.apiUrl);
    const raise = () => raising.query('SELECT promise_retention($1, $2)', [MARKERS, 24 * HOUR_MS]);
    // No longer than a connection check may take.
    await expect(raise()).rejects.toMatchObject({ code: '55P03' });
    expect(await promised()).toMatchObject({ [MARKERS]: 0 });
    await purging.query('COMMIT');
    await raise();
    expect(await promised()).toMatchObject({ [MARKERS]: 24 * HOUR_MS });
  });

  test('a raise ends all deletes that go by the older retention', async () => {
    await insertMarkers(db, 3);
    await insertRecord('abandoned', 72, 'in_progress');
    const kept = { retentionMs: 48 * HOUR_MS, marginMs: 0 };
    await db.sql('UPDATE idempotency_retentions SET retention_ms = $1', [100 * HOUR_MS]);
    const pool = purgePool(db);
    const refused =
      /goes by a retention of \d+ ms, and by now idempotency_retentions says 360000000/;
    const all = await spanOfAll();
    await expect(deleteSpan(markersOn(pool), all)).rejects.toThrow(refused);
    await expect(deleteUnlocked(markersOn(pool), span, 10)).rejects.toThrow(refused);
    await expect(deleteAbandoned(pool, kept)).rejects.toThrow(refused);
    expect(await markersLeft(db)).toHaveLength(3);
    expect(await recordsLeft()).toEqual(['abandoned']);
  });

  test('a raise makes the purge pass by, and not wait, until it is done', async () => {
    await insertMarkers(db, 3);
    const raising = await openSession(db.apiUrl);
    await raising.query('BEGIN');
    await raising.query('SELECT promise_retention($1, $2)', [MARKERS, 24 * HOUR_MS]);
    const pool = purgePool(db);
    expect(await deleteSpan(markersOn(pool), await spanOfAll())).toBe(0);
    expect(await deleteUnlocked(markersOn(pool), span, 10)).toBe(0);
    await raising.query('ROLLBACK');
    expect(await deleteSpan(markersOn(pool), await spanOfAll())).toBe(3);
  });

  /** Its one instant, and the microsecond behind. */
  async function spanOfAll() {
    const [row] = await db.sql<{ since: string; until: string }>(
      `SELECT (extract(epoch FROM min(created_at)) * 1000000)::bigint AS since,
              (extract(epoch FROM max(created_at)) * 1000000)::bigint + 1 AS until
         FROM player_mutation_idempotency`,
    );
    return row as { since: string; until: string };
  }
});

describe('the rights that the migration grants (core 1)', () => {
  test("whoever may claim may promise, and whoever may delete may read, in roles of one's own too", async () => {
    const own = await createEmptyDatabase();
    const roles = [`claims_${newKey().slice(0, 8)}`, `deletes_${newKey().slice(0, 8)}`] as const;
    onTestFinished(async () => {
      for (const role of roles) await own.sql(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    });
    for (const role of roles) await own.sql(`CREATE ROLE ${role}`);
    const [claims, deletes] = roles;
    await own.sql(`ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT ON TABLES TO ${claims}`);
    await own.sql(`ALTER DEFAULT PRIVILEGES GRANT DELETE ON TABLES TO ${deletes}`);
    await migrate(own.adminUrl);
    const [rights] = await own.sql(
      `SELECT has_function_privilege('${claims}', 'promise_retention(text, bigint)', 'EXECUTE') AS claims,
              has_function_privilege('${deletes}', 'promise_retention(text, bigint)', 'EXECUTE') AS deletes,
              has_table_privilege('${deletes}', 'idempotency_retentions', 'SELECT') AS reads,
              has_table_privilege('${claims}', 'idempotency_retentions', 'UPDATE') AS writes`,
    );
    expect(rights).toEqual({ claims: true, deletes: false, reads: true, writes: false });
  });
});

test('a purge does not delete what a service with a longer retention has promised (core 1)', async () => {
  const service = testService(
    { apiUrl: db.apiUrl },
    {
      BACKSTOP_RETENTION_MS: String(24 * HOUR_MS),
      BACKSTOP_PURGE_RETENTION_MS: String(24 * HOUR_MS),
    },
  );
  await db.sql(`INSERT INTO players (user_id, coins) VALUES ('kept', 1000) ON CONFLICT DO NOTHING`);
  const spend = testHandler(service, takeCoin);
  const request = { principal: 'kept', key: newKey(), body: {} };
  expect((await send(spend, request)).status).toBe(200);
  await db.sql(`UPDATE player_mutation_idempotency SET created_at = now() - interval '2 hours'`);
  // Another process, which knows nothing of that setting.
  expect(await purge()).toMatchObject({ rows: 0, drained: true });
  expect((await send(spend, request)).code).toBe('ALREADY_EXISTS');
});
