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
beforeEach(() => db.sql('TRUNCATE player_mutation_idempotency'));

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

test('works off a backlog, leaves what has not expired, and ends with 0', async () => {
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

test('with nothing to do it ends with 0', async () => {
  expect(await run([])).toMatchObject({ code: 0 });
});

test('--dry-run counts and deletes nothing; 0 only when there is nothing', async () => {
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

test('--rate-limit is kept', async () => {
  await insertMarkers(db, 1500, { spreadSeconds: 10 });
  const { code, output } = await run(['--until-drained', '--rate-limit', '1000', '--workers', '2']);
  expect(code).toBe(0);
  const rate = Number(/([\d,]+) rows\/s/.exec(output)?.[1]?.replace(',', ''));
  expect(rate).toBeLessThanOrEqual(1250);
});

describe('interrupted', () => {
  test.for(['SIGINT', 'SIGTERM'] as const)(
    '%s: it finishes the batch, says what is left and ends with 1',
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

  test('C98 killed outright: it goes on from there', async () => {
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
  test('one run does the rest, and ends with 1', async () => {
    await insertMarkers(db, 10);
    const other = await openSession(db.adminUrl);
    await other.query('BEGIN');
    await other.query(`DELETE FROM player_mutation_idempotency WHERE request_id = 'k1'`);
    const { code, output } = await run([]);
    expect(output).toMatch(/deleted 9 rows in .*; 1 left\n/);
    expect(code).toBe(1);
  });

  test('--until-drained waits for them', async () => {
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

describe('refused, with 2', () => {
  test.for([
    ['--frobnicate'],
    ['now'],
    ['--workers', '0'],
    ['--workers', '65'],
    ['--workers', 'two'],
    ['--rate-limit', '-5'],
    ['--rate-limit', '1.5'],
  ])('%j', async (words) => {
    const { code, output } = await run(words);
    expect(output).toMatch(/^usage: npm run purge -- /);
    expect(code).toBe(2);
  });

  test('settings that cannot be', async () => {
    const { code, output } = await run([], { BACKSTOP_PURGE_MARGIN_MS: '5' });
    expect(output).toMatch(/^BACKSTOP_PURGE_MARGIN_MS is 5/);
    expect(code).toBe(2);
  });
});

test('a database that is not there: 1, and why', async () => {
  const gone = { PURGE_DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' };
  const { code, output } = await run(['--until-drained'], gone);
  expect(output).toMatch(/ECONNREFUSED/);
  expect(code).toBe(1);
});
