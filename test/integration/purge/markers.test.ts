import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { createPurge, loadConfig } from '../../../shared/index.ts';
import { createTestDatabase, openSession, type TestDatabase } from '../../support/database.ts';
import { captureOutput } from '../../support/output.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(() => db.sql('TRUNCATE player_mutation_idempotency'));

interface Emf {
  _aws: { CloudWatchMetrics: [{ Metrics: { Name: string }[] }] };
}

/** Retention 1 h and margin 5 min, by default. */
const KEPT_MINUTES = 65;

async function insertMarkers(count: number, ageMinutes: number, prefix = 'k'): Promise<void> {
  await db.sql(
    `INSERT INTO player_mutation_idempotency
     SELECT 'purged', $2 || n, clock_timestamp() - $3::float8 * interval '1 minute'
       FROM generate_series(1, $1::int) n`,
    [count, prefix, ageMinutes],
  );
}

async function left(): Promise<string[]> {
  const rows = await db.sql<{ id: string }>(
    'SELECT request_id AS id FROM player_mutation_idempotency ORDER BY 1',
  );
  return rows.map(({ id }) => id);
}

function purge(environment: Record<string, string> = {}) {
  const purge = createPurge(
    loadConfig({ DATABASE_URL: db.apiUrl, PURGE_DATABASE_URL: db.purgeUrl, ...environment }),
  );
  onTestFinished(() => purge.close());
  return purge;
}

test('deletes what is past retention and margin, and nothing on this side of it', async () => {
  await insertMarkers(3, KEPT_MINUTES + 1, 'old');
  await insertMarkers(3, KEPT_MINUTES - 1, 'new');
  expect(await purge().run({})).toEqual({
    rows: 3,
    batches: 1,
    drained: true,
    oldestExpiredAgeSeconds: 0,
  });
  expect(await left()).toEqual(['new1', 'new2', 'new3']);
});

test('goes on in batches of the set size, exactly as many as it takes', async () => {
  await insertMarkers(21, KEPT_MINUTES + 1);
  const answer = await purge({ BACKSTOP_PURGE_BATCH_ROWS_MAX: '10' }).run({});
  expect(answer).toMatchObject({ rows: 21, batches: 3, drained: true });
});

test('rows that a peer has locked are skipped, and mean that it is not drained', async () => {
  await insertMarkers(5, KEPT_MINUTES + 2);
  const peer = await openSession(db.adminUrl);
  await peer.query('BEGIN');
  await peer.query(
    `SELECT FROM player_mutation_idempotency WHERE request_id IN ('k1', 'k2') FOR UPDATE`,
  );
  const answer = await purge().run({});
  expect(answer).toMatchObject({ rows: 3, drained: false });
  expect(answer.oldestExpiredAgeSeconds).toBeGreaterThan(119);
  expect(answer.oldestExpiredAgeSeconds).toBeLessThan(180);
  await peer.query('ROLLBACK');
  expect(await purge().run({})).toMatchObject({ rows: 2, drained: true });
  expect(await left()).toEqual([]);
});

test('stops when its time is nearly up, and says what is left', async () => {
  await insertMarkers(5, KEPT_MINUTES + 1);
  const answer = await purge().run({ getRemainingTimeInMillis: () => 1000 });
  expect(answer).toMatchObject({ rows: 0, batches: 0, drained: false });
});

test('C109 takes any shape of event, C105 and answers an object', async () => {
  process.env['PURGE_DATABASE_URL'] = db.purgeUrl;
  onTestFinished(() => {
    delete process.env['PURGE_DATABASE_URL'];
  });
  const { handler } = await import('../../../functions/purge.ts');
  const envelope = { source: 'aws.scheduler', detail: { worker: 0, workers: 1 } };
  for (const event of [{}, envelope, { worker: 0, workers: 1 }, undefined]) {
    expect(await handler(event, {})).toMatchObject({ rows: 0, drained: true });
  }
});

test('emits the metrics under their names', async () => {
  const lines = captureOutput();
  await insertMarkers(2, KEPT_MINUTES + 1);
  await purge().run({});
  const emf = lines.find((line) => '_aws' in line) as unknown as Emf;
  expect(emf).toMatchObject({
    idempotency_cleanup_rows_total: 2,
    idempotency_oldest_expired_age_seconds: 0,
    idempotency_cleanup_batch_duration_seconds: expect.any(Number),
  });
  const names = emf._aws.CloudWatchMetrics[0].Metrics.map(({ Name }) => Name);
  expect(names.toSorted()).toEqual([
    'idempotency_cleanup_batch_duration_seconds',
    'idempotency_cleanup_rows_total',
    'idempotency_oldest_expired_age_seconds',
  ]);
});

test("C62 another time zone changes nothing: the server's, the session's or the process'", async () => {
  await insertMarkers(2, KEPT_MINUTES + 1, 'old');
  await insertMarkers(2, KEPT_MINUTES - 1, 'new');
  const { database } =
    (await db.sql<{ database: string }>('SELECT current_database() AS database'))[0] ?? {};
  await db.sql(`ALTER DATABASE ${database} SET timezone = 'America/New_York'`);
  vi.stubEnv('TZ', 'America/New_York');
  onTestFinished(async () => {
    vi.unstubAllEnvs();
    await db.sql(`ALTER DATABASE ${database} RESET timezone`);
  });
  expect(await purge().run({})).toMatchObject({ rows: 2, drained: true });
  expect(await left()).toEqual(['new1', 'new2']);
});

test("the purge's own role can do this and nothing else", async () => {
  const session = await openSession(db.purgeUrl);
  for (const refused of [
    `INSERT INTO player_mutation_idempotency VALUES ('a', 'b')`,
    `UPDATE player_mutation_idempotency SET request_id = 'x'`,
    'SELECT FROM players',
    'DELETE FROM players',
  ]) {
    await expect(session.query(refused), refused).rejects.toMatchObject({ code: '42501' });
  }
});
