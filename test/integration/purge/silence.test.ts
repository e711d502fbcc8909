/**
 * The purge comes back within its time, whatever is locked and whoever is silent; and what
 * befalls one table keeps no other from its turn.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { createPurge, type Purge } from '../../../shared/service/index.ts';
import { createTestDatabase, openSession, type TestDatabase } from '../../support/database.ts';
import { type FaultProxy, startFaultProxy } from '../../support/fault-proxy.ts';
import { lambdaContext } from '../../support/requests.ts';
import { eventually } from '../../support/waiting.ts';
import { countLeft, insertMarkers } from './support.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(async () => {
  await db.sql('TRUNCATE player_mutation_idempotency, idempotency_records');
  await insertMarkers(db, 300, { spreadSeconds: 300 });
  await db.sql(
    `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status,
                                      lease_owner, lease_expires_at, created_at, completed_at, response)
     SELECT 'a', sha256('POST /x'), sha256(state::bytea), '1:' || state, state, gen_random_uuid(),
            old, old, CASE state WHEN 'completed' THEN old END, CASE state WHEN 'completed' THEN ''::bytea END
       FROM unnest(ARRAY['completed', 'in_progress']) state, (SELECT now() - interval '9 days' AS old) t`,
  );
});

const TIME_MS = 9000;

function purge(url = db.purgeUrl, environment: Record<string, string> = {}): Purge {
  const purge = createPurge({ DATABASE_URL: db.apiUrl, PURGE_DATABASE_URL: url, ...environment });
  onTestFinished(() => purge.close());
  return purge;
}

/** Runs it in so much time, and sees that some of that is left when it comes back. */
async function runInTime(worker: Purge) {
  const context = lambdaContext(TIME_MS);
  const answer = await worker.run(context);
  expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
  return answer;
}

async function lock(table: string): Promise<void> {
  const session = await openSession(db.adminUrl);
  await session.query('BEGIN');
  await session.query(`LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`);
}

async function openProxy(): Promise<FaultProxy> {
  const proxy = await startFaultProxy(db.purgeUrl);
  onTestFinished(() => proxy.close());
  return proxy;
}

const isDelete = (chunk: Buffer) => chunk.includes('DELETE');

describe('a table that somebody has locked (C120)', () => {
  test('a table locked before the purge begins is named, and the others are swept in time', async () => {
    await lock('player_mutation_idempotency');
    expect(await runInTime(purge())).toMatchObject({
      rows: 2,
      drained: false,
      leftRows: null,
      failed: ['markers'],
    });
  });

  test('a table locked in the middle of its sweep leaves what was deleted counted, and the others swept', async () => {
    const worker = purge(db.purgeUrl, { BACKSTOP_PURGE_BATCH_ROWS_MAX: '1' });
    const running = runInTime(worker);
    await eventually(async () => (await countLeft(db)) < 300, 'the first batch');
    await lock('player_mutation_idempotency');
    const answer = await running;
    expect(answer).toMatchObject({ drained: false, leftRows: null, failed: ['markers'] });
    expect(answer.rows).toBeGreaterThan(2);
    expect(answer.rows).toBeLessThan(302);
  });

  test('a lock on the table of what was promised lets nothing be deleted, and that table is named', async () => {
    await lock('idempotency_retentions');
    expect(await runInTime(purge())).toMatchObject({
      rows: 0,
      drained: false,
      failed: ['idempotency_retentions'],
    });
    expect(await countLeft(db)).toBe(300);
  });

  test("the server does not wait for a lock either, since the purge's role gives up after 5 s", async () => {
    const session = await openSession(db.purgeUrl);
    const { rows } = await session.query('SHOW lock_timeout');
    expect(rows).toEqual([{ lock_timeout: '5s' }]);
  });
});

describe('a silence during the purge (C120)', () => {
  test('a server that is silent from the middle of a batch on lets it end in time, and every sweep is named', async () => {
    const proxy = await openProxy();
    const lost = proxy.dropAfter(isDelete, 'silence').then(() => proxy.blackHole());
    const answer = await runInTime(purge(proxy.url));
    await lost;
    expect(answer).toMatchObject({
      rows: 0,
      drained: false,
      leftRows: null,
      oldestExpiredAgeSeconds: null,
      failed: ['markers', 'completed records', 'abandoned records'],
    });
  });

  test('a connection that is silent in the middle of a batch lets another one sweep the other tables', async () => {
    const proxy = await openProxy();
    const lost = proxy.dropAfter(isDelete, 'silence');
    const answer = await runInTime(purge(proxy.url));
    await lost;
    expect(answer).toMatchObject({ rows: 2, drained: false, failed: ['markers'] });
  });

  test('a server that is silent from the start lets it end in time, with what was promised unknown', async () => {
    const proxy = await openProxy();
    proxy.blackHole();
    expect(await runInTime(purge(proxy.url))).toMatchObject({
      rows: 0,
      drained: false,
      failed: ['idempotency_retentions'],
    });
  });
});
