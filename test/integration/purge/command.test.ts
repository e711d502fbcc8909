import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { createTestDatabase, openSession, type TestDatabase } from '../../support/database.ts';
import { eventually } from '../../support/waiting.ts';
import { countLeft, insertMarkers, KEPT_MINUTES } from './support.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(async () => {
  await db.sql('TRUNCATE player_mutation_idempotency, idempotency_records');
  await db.sql('UPDATE idempotency_retentions SET retention_ms = 0');
});

const COMMAND = join(import.meta.dirname, '../../../infra/local/purge.ts');

interface Run {
  readonly child: ChildProcess;
  /** Both outputs, so far. */
  output(): string;
  readonly code: Promise<number | null>;
}

/** `npm run purge -- …`, with its output not a terminal. */
function start(words: readonly string[], env: Record<string, string> = {}): Run {
  const { PATH, NODE_COMPILE_CACHE } = process.env;
  const child = spawn(process.execPath, [COMMAND, ...words], {
    env: { PATH, NODE_COMPILE_CACHE, PURGE_DATABASE_URL: db.purgeUrl, ...env },
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => chunks.push(chunk));
  return {
    child,
    output: () => Buffer.concat(chunks).toString('utf8'),
    code: once(child, 'close').then(([code]) => code as number | null),
  };
}

async function run(words: readonly string[], env: Record<string, string> = {}) {
  const started = start(words, env);
  const code = await started.code;
  return { code, output: started.output() };
}

test('the command works off a backlog, leaves what has not expired, and ends with 0', async () => {
  await insertMarkers(db, 12_000, { spreadSeconds: 60 });
  await insertMarkers(db, 3, { ageMinutes: KEPT_MINUTES - 1, prefix: 'live' });
  const { code, output } = await run(['--until-drained', '--workers', '3']);
  expect(output).toMatch(
    /^markers: about 12,000 rows have expired, the first of them 10 min ago$/m,
  );
  expect(output).toMatch(/^deleted 12,000 rows in .* rows\/s\n$/m);
  expect(code).toBe(0);
  expect(await countLeft(db)).toBe(3);
});

test('the command ends with 0 when there is nothing to do', async () => {
  expect(await run([])).toMatchObject({ code: 0 });
});

test('a dry run counts and deletes nothing, and ends with 0 only when there is nothing', async () => {
  await insertMarkers(db, 5);
  const { code, output } = await run(['--dry-run', '--until-drained']);
  expect(output).toMatch(/^markers: 5 rows have expired, the first of them 10 min ago$/m);
  expect(output).toMatch(/^dry run: 5 rows would be deleted$/m);
  expect(code).toBe(1);
  expect(await countLeft(db)).toBe(5);
  await db.sql('TRUNCATE player_mutation_idempotency');
  const nothing = await run(['--dry-run']);
  expect(nothing.output).toMatch(/^dry run: 0 rows would be deleted\n$/m);
  expect(nothing.code).toBe(0);
});

async function insertOldRecords(): Promise<void> {
  await db.sql(
    `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status,
                                      lease_owner, lease_expires_at, created_at, completed_at, response)
     SELECT 'a', sha256('POST /x'), sha256((state || n)::bytea), '1:old', state, gen_random_uuid(),
            old, old, CASE state WHEN 'completed' THEN old END, CASE state WHEN 'completed' THEN ''::bytea END
       FROM unnest(ARRAY['completed', 'in_progress']) state, generate_series(1, 20) n,
            (SELECT now() - interval '30 days' AS old) t`,
  );
}

async function countRecords(): Promise<number> {
  return (await db.sql('SELECT FROM idempotency_records')).length;
}

describe('every table that expires', () => {
  test('the dry run counts every table, and so it ends with 1 (house A3)', async () => {
    await insertOldRecords();
    const { code, output } = await run(['--dry-run']);
    expect(output).toMatch(/^markers: 0 rows have expired$/m);
    expect(output).toMatch(
      /^completed records: 20 rows have expired, the first of them 671 h 55 min ago$/m,
    );
    expect(output).toMatch(
      /^abandoned records: 20 rows have expired, the first of them 671 h 55 min ago$/m,
    );
    expect(output).toMatch(/^dry run: 40 rows would be deleted$/m);
    expect(code).toBe(1);
    expect(await countRecords()).toBe(40);
  });

  test('every table is swept until drained, and only then the command ends with 0 (house A3)', async () => {
    await insertOldRecords();
    await insertMarkers(db, 5);
    const { code, output } = await run(['--until-drained']);
    expect(output).toMatch(/^deleted 45 rows in /m);
    expect(code).toBe(0);
    expect([await countRecords(), await countLeft(db)]).toEqual([0, 0]);
  });

  test('the command ends with 1 when rows are left in one of the tables (house A3)', async () => {
    await insertOldRecords();
    const other = await openSession(db.adminUrl);
    await other.query('BEGIN');
    await other.query(
      `SELECT FROM idempotency_records WHERE status = 'completed' LIMIT 1 FOR UPDATE`,
    );
    const { code, output } = await run([]);
    expect(output).toMatch(/^deleted 39 rows in .*; 1 left$/m);
    expect(code).toBe(1);
  });

  test('a table that this release does not know is named, and the others are swept (core 1)', async () => {
    await insertMarkers(db, 5);
    await db.sql(`INSERT INTO idempotency_retentions VALUES ('idempotency_markers_weeks', 1)`);
    onTestFinished(async () => {
      await db.sql(
        `DELETE FROM idempotency_retentions WHERE table_name = 'idempotency_markers_weeks'`,
      );
    });
    const { code, output } = await run([]);
    expect(output).toMatch(/^idempotency_markers_weeks: This release does not know the table/m);
    expect(output).toMatch(/^deleted 5 rows in .*; what is left could not be counted$/m);
    expect(code).toBe(1);
  });
});

describe('the retention that the command uses', () => {
  test.each([['--dry-run'], ['--until-drained']])(
    'a longer retention that was promised counts, and %s says so (core 1)',
    async (word) => {
      await insertMarkers(db, 5, { ageMinutes: 120, prefix: 'live' });
      await db.sql('UPDATE idempotency_retentions SET retention_ms = 86400000');
      const { code, output } = await run([word]);
      expect(output).toMatch(
        /^player_mutation_idempotency: kept for 24 h, as was promised \(idempotency_retentions\), and 5 min of margin$/m,
      );
      expect(output).toMatch(/^idempotency_records: kept for 48 h, as is set here .*/m);
      expect(code).toBe(0);
      expect(await countLeft(db)).toBe(5);
    },
  );

  test('the retention is not known in a schema older than the promises, and nothing is deleted (core 1)', async () => {
    const old = await createTestDatabase();
    onTestFinished(() => old.drop());
    await old.sql('DROP TABLE idempotency_retentions CASCADE');
    await insertMarkers(old, 5);
    const { code, output } = await run(['--until-drained'], { PURGE_DATABASE_URL: old.purgeUrl });
    expect(output).toMatch(/idempotency_retentions is missing\. Run migrate\(databaseUrl\)/);
    expect(code).toBe(1);
    expect(await countLeft(old)).toBe(5);
  });
});

test('the command keeps the rate of --rate-limit', async () => {
  await insertMarkers(db, 1500, { spreadSeconds: 10 });
  const { code, output } = await run(['--until-drained', '--rate-limit', '1000', '--workers', '2']);
  expect(code).toBe(0);
  const rate = Number(/([\d,]+) rows\/s/.exec(output)?.[1]?.replace(',', ''));
  expect(rate).toBeLessThanOrEqual(1250);
});

describe('a command that is interrupted', () => {
  test.for(['SIGINT', 'SIGTERM'] as const)(
    'the command finishes the batch at %s, says what is left and ends with 1',
    async (signal) => {
      await insertMarkers(db, 20_000, { spreadSeconds: 100 });
      const { child, code, output } = start(['--until-drained', '--rate-limit', '2000']);
      await eventually(async () => (await countLeft(db)) < 20_000, 'the first batch');
      child.kill(signal);
      expect(await code).toBe(1);
      const deleted = Number(/deleted ([\d,]+) rows/.exec(output())?.[1]?.replaceAll(',', ''));
      expect(deleted).toBe(20_000 - (await countLeft(db)));
      expect(output()).toMatch(/; about [\d,]+ left\nrun it again to go on/);
      expect(await run(['--until-drained'])).toMatchObject({ code: 0 });
      expect(await countLeft(db)).toBe(0);
    },
  );

  test('a command after one that was killed outright goes on from there (C98)', async () => {
    await insertMarkers(db, 20_000, { spreadSeconds: 100 });
    const { child, code } = start(['--until-drained', '--rate-limit', '2000']);
    await eventually(async () => (await countLeft(db)) <= 18_500, 'three batches');
    child.kill('SIGKILL');
    await code;
    await eventually(async () => {
      const sessions = await db.sql(
        `SELECT FROM pg_stat_activity
          WHERE datname = current_database() AND usename = 'backstop_purge'`,
      );
      return sessions.length === 0;
    }, 'its session gone');
    const left = await countLeft(db);
    expect(left).toBeGreaterThan(0);
    const { code: again, output } = await run(['--until-drained']);
    expect(again).toBe(0);
    expect(output).toContain(`deleted ${left.toLocaleString('en')} rows`);
  });
});

describe('rows that somebody else holds', () => {
  test('one run deletes the other rows, and ends with 1', async () => {
    await insertMarkers(db, 10);
    const other = await openSession(db.adminUrl);
    await other.query('BEGIN');
    await other.query(`DELETE FROM player_mutation_idempotency WHERE request_id = 'k1'`);
    const { code, output } = await run([]);
    expect(output).toMatch(/deleted 9 rows in .*; 1 left\n/);
    expect(code).toBe(1);
  });

  test('a run with --until-drained waits for the held rows', async () => {
    await insertMarkers(db, 10);
    const other = await openSession(db.adminUrl);
    await other.query('BEGIN');
    await other.query(`SELECT FROM player_mutation_idempotency WHERE request_id = 'k1' FOR UPDATE`);
    const { code } = start(['--until-drained']);
    await eventually(async () => (await countLeft(db)) === 1, 'all but the one');
    await other.query('ROLLBACK');
    expect(await code).toBe(0);
    expect(await countLeft(db)).toBe(0);
  });
});

describe('a usage that is refused with 2', () => {
  test.for([
    ['--frobnicate'],
    ['now'],
    ['--workers', '0'],
    ['--workers', '65'],
    ['--workers', 'two'],
    ['--rate-limit', '-5'],
    ['--rate-limit', '1.5'],
  ])('%j is refused', async (words) => {
    const { code, output } = await run(words);
    expect(output).toMatch(/^usage: npm run purge -- /);
    expect(code).toBe(2);
  });

  test('impossible settings are refused', async () => {
    const { code, output } = await run([], { BACKSTOP_PURGE_MARGIN_MS: '5' });
    expect(output).toMatch(/^BACKSTOP_PURGE_MARGIN_MS is 5/);
    expect(code).toBe(2);
  });
});

test('a database that is not there ends the command with 1 and the reason', async () => {
  const gone = { PURGE_DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' };
  const { code, output } = await run(['--until-drained'], gone);
  expect(output).toMatch(/ECONNREFUSED/);
  expect(code).toBe(1);
});
