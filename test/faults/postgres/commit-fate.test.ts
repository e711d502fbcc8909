/** What became of a COMMIT, asked in the very moment in which it happens. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { lookUpCommit } from '../../../shared/postgres/commit-fate.ts';
import { createTestDatabase, type TestDatabase } from '../../support/database.ts';
import { testService } from '../../support/service.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
  await db.sql('CREATE SEQUENCE looks');
  await db.sql('GRANT USAGE ON SEQUENCE looks TO backstop_api');
});
afterAll(() => db.drop());

/** Of a transaction that has committed, and whose mark is seen from the nth look on. */
async function fateOf(seenFrom: number) {
  await db.sql(`SELECT setval('looks', 1, false)`);
  const [committed] = await db.sql<{ xid: string }>('SELECT pg_current_xact_id()::text AS xid');
  const { database } = testService(db);
  const proof = {
    text: `SELECT CASE WHEN nextval('looks') >= $2::int AND $1 IS NOT NULL THEN 7::float8 END`,
    values: [seenFrom],
  };
  return lookUpCommit(database, proof, committed?.xid ?? '', Date.now() + 5000);
}

test('a COMMIT that the snapshot of the first look has not seen is found by the next look', async () => {
  expect(await fateOf(1)).toEqual({ kind: 'committed', retainedFromMs: 7 });
  expect(await fateOf(2)).toEqual({ kind: 'committed', retainedFromMs: 7 });
});

test('a transaction that is committed and has no mark is another one, of a restored server', async () => {
  expect(await fateOf(3)).toEqual({ kind: 'unknown' });
});

test('a visible row is the proof, also of a transaction so old that its status is NULL (core V7)', async () => {
  const { database } = testService(db);
  const frozen = '3';
  const [row] = await db.sql<{ status: string | null }>(
    'SELECT pg_xact_status($1::xid8) AS status',
    [frozen],
  );
  expect(row?.status).toBeNull();
  const proof = { text: 'SELECT 7::float8 WHERE $1 IS NOT NULL', values: [] };
  expect(await lookUpCommit(database, proof, frozen, Date.now() + 20_000)).toEqual({
    kind: 'committed',
    retainedFromMs: 7,
  });
});
