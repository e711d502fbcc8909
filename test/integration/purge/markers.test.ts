import {
  afterAll,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
  vi,
} from 'vitest';
import type { Queryable } from '../../../shared/postgres/pool.ts';
import { runSweeps } from '../../../shared/postgres/purge/run.ts';
import { type SweepPlan, sweepExpired } from '../../../shared/postgres/purge/sweep.ts';
import { noThrottle } from '../../../shared/postgres/purge/throttle.ts';
import { createPurge, type Purge } from '../../../shared/service/index.ts';
import { createTestDatabase, openSession, type TestDatabase } from '../../support/database.ts';
import { startFaultProxy } from '../../support/fault-proxy.ts';
import { captureOutput } from '../../support/output.ts';
import { lambdaContext } from '../../support/requests.ts';
import {
  countLeft,
  insertMarkers,
  KEPT_MINUTES,
  markersLeft,
  markersOn,
  purgePool,
  sweep,
} from './support.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(() => db.sql('TRUNCATE player_mutation_idempotency'));

function planFor(remainingMs: number): SweepPlan {
  return {
    concurrency: 1,
    batchRowsMax: 1000,
    createThrottle: () => noThrottle,
    remainingMs: () => remainingMs,
    onBatch: () => {},
  };
}

function purge(environment: Record<string, string> = {}): Purge {
  const purge = createPurge({
    DATABASE_URL: db.apiUrl,
    PURGE_DATABASE_URL: db.purgeUrl,
    ...environment,
  });
  onTestFinished(() => purge.close());
  return purge;
}

/** The log's errors go to standard error. */
function captureErrors(): string[] {
  const chunks: string[] = [];
  const write = vi.spyOn(process.stderr, 'write').mockImplementation((chunk) => {
    chunks.push(String(chunk));
    return true;
  });
  onTestFinished(() => write.mockRestore());
  return chunks;
}

test('the purge deletes what is past retention and margin, and nothing on this side of it', async () => {
  await insertMarkers(db, 3, { ageMinutes: KEPT_MINUTES + 1, prefix: 'old' });
  await insertMarkers(db, 3, { ageMinutes: KEPT_MINUTES - 1, prefix: 'new' });
  expect(await purge().run({})).toEqual({
    rows: 3,
    batches: 1,
    drained: true,
    oldestExpiredAgeSeconds: 0,
    leftRows: 0,
    rowsPerSecond: expect.any(Number),
    arrivalPerSecond: 0.05,
    secondsToDrain: 0,
    failed: [],
    retentions: [
      { table: 'player_mutation_idempotency', retentionMs: 3_600_000, source: 'configured' },
      { table: 'idempotency_records', retentionMs: 172_800_000, source: 'configured' },
    ],
  });
  expect(await markersLeft(db)).toEqual(['new1', 'new2', 'new3']);
});

test('the purge goes by the retention and the margin that are set', async () => {
  const settings = { BACKSTOP_PURGE_RETENTION_MS: '7200000', BACKSTOP_PURGE_MARGIN_MS: '60000' };
  await insertMarkers(db, 1, { ageMinutes: 122, prefix: 'old' });
  await insertMarkers(db, 1, { ageMinutes: 120, prefix: 'new' });
  expect(await purge(settings).run({})).toMatchObject({ rows: 1, drained: true });
  expect(await markersLeft(db)).toEqual(['new1']);
});

test('no batch is larger than what is set', async () => {
  await insertMarkers(db, 21, { spreadSeconds: 1 });
  const answer = await purge({ BACKSTOP_PURGE_BATCH_ROWS_MAX: '10' }).run({});
  expect(answer).toMatchObject({ rows: 21, batches: 3, drained: true });
});

test('several loops of one invocation share the work, on a connection each', async () => {
  await insertMarkers(db, 20_000, { spreadSeconds: 200 });
  const settings = {
    PURGE_DATABASE_URL: `${db.purgeUrl}?application_name=three-loops`,
    BACKSTOP_PURGE_LOOPS: '3',
  };
  const answer = await purge(settings).run({});
  expect(answer).toMatchObject({ rows: 20_000, drained: true, failed: [] });
  const [sessions] = await db.sql<{ count: number }>(
    `SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'three-loops'`,
  );
  expect(sessions?.count).toBe(3);
});

test('rows that a peer has locked leave the table undrained, and the time to drain unknown', async () => {
  await insertMarkers(db, 5, { ageMinutes: KEPT_MINUTES + 2 });
  const peer = await openSession(db.adminUrl);
  await peer.query('BEGIN');
  await peer.query('SELECT FROM player_mutation_idempotency FOR UPDATE');
  const answer = await purge().run({});
  expect(answer).toMatchObject({ rows: 0, drained: false, leftRows: 5, secondsToDrain: null });
  expect(answer.oldestExpiredAgeSeconds).toBeGreaterThan(119);
  expect(answer.oldestExpiredAgeSeconds).toBeLessThan(180);
  await peer.query('ROLLBACK');
  expect(await purge().run({})).toMatchObject({ rows: 5, drained: true, secondsToDrain: 0 });
});

describe('the time that a run has', () => {
  test.for([1000, 0])('a run with %d ms left deletes nothing, and says so', async (left) => {
    await insertMarkers(db, 5);
    const answer = await purge().run({ getRemainingTimeInMillis: () => left });
    expect(answer).toMatchObject({ rows: 0, batches: 0, drained: false, leftRows: 5 });
  });

  test('each run of 10 s commits its progress in a million rows and reports the rest (C94)', async () => {
    await insertMarkers(db, 1_000_000, { spreadSeconds: 500 });
    // Batches so small that no machine drains it in that time.
    const short = await purge({ BACKSTOP_PURGE_BATCH_ROWS_MAX: '1000' }).run(lambdaContext(8000));
    expect(short.rows).toBeGreaterThan(0);
    expect(short).toMatchObject({ drained: false, failed: [] });
    const left = await countLeft(db);
    expect(left).toBe(1_000_000 - short.rows);
    expect((short.leftRows ?? 0) / left).toBeGreaterThan(0.75);
    expect((short.leftRows ?? 0) / left).toBeLessThan(1.25);
    expect(short.secondsToDrain).toBeCloseTo((short.leftRows ?? 0) / short.rowsPerSecond, 5);

    // One run does it, unless the machine has other things to do.
    for (let drained = false, stands = left; !drained; ) {
      const context = lambdaContext(10_000);
      const run = await purge().run(context);
      expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
      expect(run).toMatchObject({ failed: [], rows: expect.any(Number) });
      expect(run.rows).toBeGreaterThan(0);
      stands -= run.rows;
      expect(await countLeft(db)).toBe(stands);
      drained = run.drained;
      expect(drained).toBe(stands === 0);
    }
  }, 120_000);
});

describe('a sweep that fails', () => {
  test('a sweep that fails does not stop the others, and what it did before counts', async () => {
    await insertMarkers(db, 2500, { spreadSeconds: 2 });
    const broken = new Error('relation "gone" does not exist');
    const halfway = async (_db: Queryable, { onBatch }: SweepPlan) => {
      onBatch(7, 0.1);
      return { leftRows: 3, oldestExpiredAgeSeconds: 1, arrivalPerSecond: 0, error: broken };
    };
    const { result, errors } = await runSweeps(
      purgePool(db).pool,
      [
        { name: 'throws', run: () => Promise.reject(broken) },
        { name: 'halfway', run: halfway },
        { name: 'markers', run: (on, plan) => sweepExpired(markersOn(on), plan) },
      ],
      planFor(30_000),
    );
    expect(result).toMatchObject({
      rows: 2507,
      drained: false,
      failed: ['throws', 'halfway'],
      leftRows: null,
      oldestExpiredAgeSeconds: null,
    });
    expect(errors).toEqual([
      { sweep: 'throws', error: broken },
      { sweep: 'halfway', error: broken },
    ]);
    expect(await countLeft(db)).toBe(0);
  });

  test('a sweep leaves the others their part of the time', async () => {
    const parts: number[] = [];
    const greedy = (name: string) => ({
      name,
      run: async (on: Queryable, { remainingMs }: SweepPlan) => {
        parts.push(remainingMs());
        return sweep(on);
      },
    });
    const sweeps = [greedy('first'), greedy('second')];
    await runSweeps(purgePool(db).pool, sweeps, planFor(12_000));
    // 12 s, of which 2 are the margin; half of a part (5 s at the most) comes after its deletes.
    expect(parts[0]).toBeGreaterThan(2400);
    expect(parts[0]).toBeLessThanOrEqual(2500);
    expect(parts[1]).toBeGreaterThan(4000);
    expect(parts[1]).toBeLessThanOrEqual(5000);
  });

  test('a sweep that fails is an answer, a line in the log and a count', async () => {
    const lines = captureOutput();
    const errors = captureErrors();
    await insertMarkers(db, 10);
    await db.sql('ALTER TABLE player_mutation_idempotency RENAME TO elsewhere');
    onTestFinished(async () => {
      await db.sql('ALTER TABLE elsewhere RENAME TO player_mutation_idempotency');
    });
    expect(await purge().run({})).toMatchObject({
      rows: 0,
      drained: false,
      leftRows: null,
      failed: ['markers'],
    });
    expect(errors.join('')).toMatch(/"level":"ERROR".*"sweep":"markers".*does not exist/);
    expect(lines.find((line) => '_aws' in line)).toMatchObject({
      idempotency_cleanup_rows_total: 0,
      idempotency_cleanup_failures_total: 1,
    });
  });

  test('the counts of two runs add up to what was there when the first lost its connection (C98)', async () => {
    const lines = captureOutput();
    captureErrors();
    await insertMarkers(db, 1000, { spreadSeconds: 10 });
    const proxy = await startFaultProxy(db.purgeUrl);
    onTestFinished(() => proxy.close());
    let deletes = 0;
    const lost = proxy.dropBefore((chunk) => chunk.includes('DELETE') && ++deletes === 4);
    const settings = { PURGE_DATABASE_URL: proxy.url, BACKSTOP_PURGE_BATCH_ROWS_MAX: '100' };
    expect(await purge(settings).run({})).toMatchObject({ rows: 300, failed: ['markers'] });
    await lost;
    expect(await purge(settings).run({})).toMatchObject({ rows: 700, failed: [], drained: true });
    const counts = lines.map((line) => line['idempotency_cleanup_rows_total']);
    expect(counts.filter((count) => count !== undefined)).toEqual([300, 700]);
  });
});

describe('the schedule of the purge', () => {
  test('the function accepts any shape of event and answers an object (C105, C109)', async () => {
    process.env['PURGE_DATABASE_URL'] = db.purgeUrl;
    onTestFinished(() => {
      delete process.env['PURGE_DATABASE_URL'];
    });
    const { handler } = await import('../../../functions/operations/purge.ts');
    // As the schedules of older releases said it, and wrongly: workers have no numbers any more.
    const envelope = { source: 'aws.scheduler', detail: { worker: 0, workers: 1 } };
    for (const event of [
      {},
      envelope,
      { worker: 1, workers: 2 },
      { worker: 2, workers: 2 },
      null,
    ]) {
      await insertMarkers(db, 3);
      expect(await handler(event, {})).toMatchObject({ rows: 3, drained: true, failed: [] });
    }
  });

  test('four runs of the same event at once delete together what had expired (C97)', async () => {
    await insertMarkers(db, 20_000, { spreadSeconds: 20 });
    await insertMarkers(db, 10, { ageMinutes: KEPT_MINUTES - 1, prefix: 'live' });
    const answers = await Promise.all([1, 2, 3, 4].map(() => purge().run({})));
    expect(answers.flatMap(({ failed }) => failed)).toEqual([]);
    expect(answers.reduce((sum, { rows }) => sum + rows, 0)).toBe(20_000);
    expect(await countLeft(db)).toBe(10);
  });
});

interface Emf {
  _aws: { CloudWatchMetrics: [{ Metrics: { Name: string }[]; Dimensions: string[][] }] };
}

test('the metrics are emitted under their names, with service and stage as their only dimensions', async () => {
  const lines = captureOutput();
  await insertMarkers(db, 2);
  await insertMarkers(db, 60, { ageMinutes: KEPT_MINUTES - 0.5, prefix: 'soon' });
  await purge().run({});
  const emf = lines.find((line) => '_aws' in line) as unknown as Emf;
  expect(emf).toMatchObject({
    idempotency_cleanup_rows_total: 2,
    idempotency_cleanup_failures_total: 0,
    idempotency_oldest_expired_age_seconds: 0,
    idempotency_cleanup_backlog_rows: 0,
    idempotency_cleanup_rows_per_second: expect.any(Number),
    idempotency_cleanup_arrival_rows_per_second: 1,
    idempotency_cleanup_drain_seconds: 0,
    idempotency_cleanup_batch_duration_seconds: expect.any(Number),
  });
  const [{ Metrics, Dimensions }] = emf._aws.CloudWatchMetrics;
  expect(Metrics.map(({ Name }) => Name).toSorted()).toEqual([
    'idempotency_cleanup_arrival_rows_per_second',
    'idempotency_cleanup_backlog_rows',
    'idempotency_cleanup_batch_duration_seconds',
    'idempotency_cleanup_drain_seconds',
    'idempotency_cleanup_failures_total',
    'idempotency_cleanup_rows_per_second',
    'idempotency_cleanup_rows_total',
    'idempotency_oldest_expired_age_seconds',
  ]);
  expect(Dimensions).toEqual([['service', 'stage']]);
});

test('rows are counted once when there are more batches than one metrics blob takes', async () => {
  const lines = captureOutput();
  await insertMarkers(db, 250, { spreadSeconds: 250 });
  await purge({ BACKSTOP_PURGE_BATCH_ROWS_MAX: '1' }).run(lambdaContext(120_000));
  const blobs = lines.filter((line) => '_aws' in line);
  expect(blobs.length).toBeGreaterThan(2);
  expect(blobs.filter((blob) => 'idempotency_cleanup_rows_total' in blob)).toHaveLength(1);
  const durations = blobs.flatMap((blob) => blob['idempotency_cleanup_batch_duration_seconds']);
  expect(durations).toHaveLength(250);
});

test('another time zone of the server, the session or the process changes nothing (C62)', async () => {
  await insertMarkers(db, 2, { ageMinutes: KEPT_MINUTES + 1, prefix: 'old' });
  await insertMarkers(db, 2, { ageMinutes: KEPT_MINUTES - 1, prefix: 'new' });
  const { database } =
    (await db.sql<{ database: string }>('SELECT current_database() AS database'))[0] ?? {};
  await db.sql(`ALTER DATABASE ${database} SET timezone = 'America/New_York'`);
  vi.stubEnv('TZ', 'America/New_York');
  onTestFinished(async () => {
    vi.unstubAllEnvs();
    await db.sql(`ALTER DATABASE ${database} RESET timezone`);
  });
  expect(await purge().run({})).toMatchObject({ rows: 2, drained: true });
  expect(await markersLeft(db)).toEqual(['new1', 'new2']);
});

test('a process clock three minutes fast or slow changes nothing (C61)', async () => {
  await insertMarkers(db, 2, { ageMinutes: KEPT_MINUTES + 1, prefix: 'old' });
  await insertMarkers(db, 2, { ageMinutes: KEPT_MINUTES - 1, prefix: 'new' });
  onTestFinished(() => void vi.useRealTimers());
  for (const skewMs of [180_000, -180_000]) {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + skewMs });
    await purge().run({});
    vi.useRealTimers();
    expect(await markersLeft(db)).toEqual(['new1', 'new2']);
  }
});

test("the purge's own role can do this and nothing else", async () => {
  const session = await openSession(db.purgeUrl);
  for (const refused of [
    `INSERT INTO player_mutation_idempotency VALUES ('a', 'b')`,
    `UPDATE player_mutation_idempotency SET request_id = 'x'`,
    `UPDATE player_mutation_idempotency SET user_id = 'x'`,
    'TRUNCATE player_mutation_idempotency',
    'SELECT FROM players',
    'DELETE FROM players',
    'INSERT INTO players (user_id) VALUES (1)',
    'SELECT FROM backstop_migrations',
    'CREATE TABLE mine ()',
  ]) {
    await expect(session.query(refused), refused).rejects.toMatchObject({ code: '42501' });
  }
  const grants = await db.sql(
    `SELECT privilege_type, is_grantable FROM information_schema.table_privileges
      WHERE grantee = 'backstop_purge' AND table_name = 'player_mutation_idempotency' ORDER BY 1`,
  );
  expect(grants).toEqual([
    { privilege_type: 'DELETE', is_grantable: 'NO' },
    { privilege_type: 'SELECT', is_grantable: 'NO' },
  ]);
});
