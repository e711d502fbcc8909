import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  deleteSpan,
  deleteUnlocked,
  findBatch,
  secondsOf,
} from '../../../shared/postgres/purge/batch.ts';
import { createTestDatabase, openSession, type TestDatabase } from '../../support/database.ts';
import { seenBlocked } from '../../support/waiting.ts';
import { countLeft, insertMarkers, markersLeft, markersOn, purgePool } from './support.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(() => db.sql('TRUNCATE player_mutation_idempotency'));

/** From 1970 to 2100. */
const ALL = { since: '0', until: '4102444800000000' };
/** So long that only what the test does ends the wait. */
const LONG_MS = 25_000;

async function timeOf(id: string): Promise<string> {
  const [row] = await db.sql<{ at: string }>(
    `SELECT (extract(epoch FROM created_at) * 1000000)::bigint AS at
       FROM player_mutation_idempotency WHERE request_id = $1`,
    [id],
  );
  return row?.at ?? '';
}

describe('a plan that is a nested loop whatever it costs (C90)', () => {
  const NESTED = ['hashjoin', 'mergejoin', 'hashagg', 'sort', 'material', 'tidscan']
    .map((node) => `-c enable_${node}=off`)
    .join(' ');

  beforeEach(() => insertMarkers(db, 500, { spreadSeconds: 100 }));

  test('a DELETE of the kind that is not used here deletes past its LIMIT', async () => {
    const { rowCount } = await purgePool(db, 1, NESTED).query(
      `DELETE FROM player_mutation_idempotency WHERE ctid IN (
         SELECT ctid FROM player_mutation_idempotency ORDER BY created_at LIMIT 10
            FOR UPDATE SKIP LOCKED)`,
    );
    expect(rowCount).toBe(500);
  });

  test('a batch has the rows that were asked for, and they are what is deleted', async () => {
    const table = markersOn(purgePool(db, 1, NESTED));
    const batch = await findBatch(table, ALL, 10);
    expect(batch).toMatchObject({ since: await timeOf('k1'), until: await timeOf('k11') });
    expect(await deleteSpan(table, batch ?? ALL)).toBe(10);
    expect(await markersLeft(db)).not.toContain('k10');
    expect(await markersLeft(db)).toContain('k11');
  });

  test('a delete row by row of what is unlocked deletes as many rows as were asked for', async () => {
    expect(await deleteUnlocked(markersOn(purgePool(db, 1, NESTED)), ALL, 10)).toBe(10);
    expect(await countLeft(db)).toBe(490);
  });
});

describe('the bounds of a batch', () => {
  test('a batch ends at 64 seconds where rows are few', async () => {
    await insertMarkers(db, 10, { spreadSeconds: 1000 });
    const until = await timeOf('k10');
    const table = markersOn(purgePool(db));
    const batch = await findBatch(table, { ...ALL, until }, 1000);
    expect(batch).toMatchObject({
      since: await timeOf('k1'),
      isFull: false,
      isSingleTimestamp: false,
    });
    expect(secondsOf(batch ?? ALL)).toBeGreaterThan(63);
    expect(secondsOf(batch ?? ALL)).toBeLessThanOrEqual(64);
  });

  test('a batch is a whole instant where that has more rows than were asked for', async () => {
    await insertMarkers(db, 11);
    const batch = await findBatch(markersOn(purgePool(db)), ALL, 10);
    expect(batch).toMatchObject({ isSingleTimestamp: true });
    expect(secondsOf(batch ?? ALL)).toBe(0.000001);
  });

  test('a batch keeps the microseconds', async () => {
    await db.sql(
      `INSERT INTO player_mutation_idempotency VALUES
       ('u', 'a', '2026-01-01 00:00:00.000001Z'), ('u', 'b', '2026-01-01 00:00:00.000002Z')`,
    );
    const table = markersOn(purgePool(db));
    const batch = await findBatch(table, ALL, 1);
    expect(await deleteSpan(table, batch ?? ALL)).toBe(1);
    expect(await markersLeft(db)).toEqual(['b']);
  });

  test('an empty span has no batch', async () => {
    expect(await findBatch(markersOn(purgePool(db)), ALL, 10)).toBeUndefined();
  });
});

describe('two purges at once', () => {
  test('two purges are never in the same second, since the other deletes nothing at once', async () => {
    await insertMarkers(db, 100, { spreadSeconds: 0.5 });
    const first = await openSession(db.purgeUrl);
    await first.query('BEGIN');
    const batch = (await findBatch(markersOn(first), ALL, 10)) ?? ALL;
    const rest = { since: batch.until, until: await timeOf('k100') };
    expect(await deleteSpan(markersOn(first), batch)).toBe(10);
    // Not one row of these is locked: it is the second that is taken.
    expect(await deleteSpan(markersOn(purgePool(db)), rest)).toBe(0);
    await first.query('COMMIT');
    expect(await deleteSpan(markersOn(purgePool(db)), rest)).toBe(89);
  });

  test('two purges are both at work in different seconds', async () => {
    await insertMarkers(db, 100, { spreadSeconds: 100 });
    const first = await openSession(db.purgeUrl);
    await first.query('BEGIN');
    const early = { ...ALL, until: await timeOf('k11') };
    const batch = (await findBatch(markersOn(first), early, 1000)) ?? ALL;
    expect(await deleteSpan(markersOn(first), batch)).toBe(10);
    const late = { since: await timeOf('k21'), until: await timeOf('k31') };
    expect(await deleteSpan(markersOn(purgePool(db)), late)).toBe(10);
    await first.query('ROLLBACK');
    expect(await countLeft(db)).toBe(90);
  });
});

describe('a row for which the purge waits (C91)', () => {
  const spanOf = async (id: string) => ({
    since: await timeOf(id),
    until: await timeOf('end'),
  });

  beforeEach(async () => {
    await insertMarkers(db, 1);
    await insertMarkers(db, 1, { ageMinutes: 70, prefix: 'en' });
    await db.sql(
      `UPDATE player_mutation_idempotency SET request_id = 'end' WHERE request_id = 'en1'`,
    );
  });

  test('a row that is claimed anew meanwhile lives', async () => {
    const span = await spanOf('k1');
    const claimer = await openSession(db.adminUrl);
    await claimer.query('BEGIN');
    await claimer.query(`DELETE FROM player_mutation_idempotency WHERE request_id = 'k1'`);
    await claimer.query(`INSERT INTO player_mutation_idempotency VALUES ('purged', 'k1')`);
    const deleting = deleteSpan(markersOn(purgePool(db)), span, LONG_MS);
    await seenBlocked(db);
    await claimer.query('COMMIT');
    expect(await deleting).toBe(0);
    expect(await markersLeft(db)).toEqual(['end', 'k1']);
  });

  test('a row that is made young again meanwhile lives', async () => {
    const span = await spanOf('k1');
    const owner = await openSession(db.adminUrl);
    await owner.query('BEGIN');
    await owner.query(
      `UPDATE player_mutation_idempotency SET created_at = now() WHERE request_id = 'k1'`,
    );
    const deleting = deleteSpan(markersOn(purgePool(db)), span, LONG_MS);
    await seenBlocked(db);
    await owner.query('COMMIT');
    expect(await deleting).toBe(0);
    expect(await markersLeft(db)).toEqual(['end', 'k1']);
  });

  test('a row whose owner rolls back meanwhile goes', async () => {
    const span = await spanOf('k1');
    const owner = await openSession(db.adminUrl);
    await owner.query('BEGIN');
    await owner.query(`DELETE FROM player_mutation_idempotency WHERE request_id = 'k1'`);
    const deleting = deleteSpan(markersOn(purgePool(db)), span, LONG_MS);
    await seenBlocked(db);
    await owner.query('ROLLBACK');
    expect(await deleting).toBe(1);
    expect(await markersLeft(db)).toEqual(['end']);
  });
});

describe('a row that somebody else has locked', () => {
  beforeEach(() => insertMarkers(db, 10, { spreadSeconds: 0.5 }));

  test('the purge waits for a locked row no longer than was said', async () => {
    const other = await openSession(db.adminUrl);
    await other.query('BEGIN');
    await other.query(`SELECT FROM player_mutation_idempotency WHERE request_id = 'k5' FOR UPDATE`);
    const table = markersOn(purgePool(db));
    const batch = (await findBatch(table, ALL, 100)) ?? ALL;
    await expect(deleteSpan(table, batch)).rejects.toMatchObject({ code: '55P03' });
    expect(await deleteUnlocked(table, batch, 100)).toBe(9);
    expect(await markersLeft(db)).toEqual(['k5']);
  });

  test('the purge gives way when it meets locks in the other order, and there is no deadlock', async () => {
    const other = await openSession(db.adminUrl);
    await other.query('BEGIN');
    await other.query(`DELETE FROM player_mutation_idempotency WHERE request_id = 'k9'`);
    const table = markersOn(purgePool(db));
    const batch = (await findBatch(table, ALL, 100)) ?? ALL;
    const deleting = deleteSpan(table, batch, 900);
    const refused = expect(deleting).rejects.toMatchObject({ code: '55P03' });
    await seenBlocked(db);
    // Now each waits for the other.
    await other.query(`DELETE FROM player_mutation_idempotency WHERE request_id = 'k1'`);
    await refused;
    await other.query('COMMIT');
    expect(await countLeft(db)).toBe(8);
  });
});
