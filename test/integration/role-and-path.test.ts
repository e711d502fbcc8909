/** Work that changes the schema it searches, or the role it acts as, for its transaction. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { HttpResponse } from '../../shared/index.ts';
import type { Tx } from '../../shared/postgres/index.ts';
import {
  createTestDatabase,
  openSession,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../support/database.ts';
import { newKey, send } from '../support/requests.ts';
import { testService } from '../support/service.ts';
import { STORES, takeCoin, testHandler } from '../support/test-handler.ts';

let db: TestDatabase;
const tenant = `tenant_${newKey().replaceAll('-', '')}`;
beforeAll(async () => {
  db = await createTestDatabase();
  await db.sql(`CREATE ROLE ${tenant}`);
  await db.sql(`GRANT ${tenant} TO backstop_api`);
  await db.sql(`CREATE SCHEMA ${tenant} AUTHORIZATION ${tenant}`);
  await db.sql(`CREATE TABLE ${tenant}.notes (text text)`);
  await db.sql(`GRANT INSERT ON ${tenant}.notes TO ${tenant}, backstop_api`);
  await db.sql(`GRANT USAGE ON SCHEMA ${tenant} TO backstop_api`);
  // A decoy in the schema that the work searches: whoever found it would publish nothing.
  await db.sql(`CREATE TABLE ${tenant}.idempotency_records (LIKE idempotency_records)`);
});
afterAll(async () => {
  await db.sql(`DROP OWNED BY ${tenant} CASCADE`);
  await db.sql(`DROP ROLE ${tenant}`);
  await db.drop();
});

const changes = [
  [`SET LOCAL search_path = ${tenant}`],
  [`SET LOCAL ROLE ${tenant}`],
  [`SET LOCAL search_path = ${tenant}`, `SET LOCAL ROLE ${tenant}`],
];

describe.each(STORES)('a work that changes its path or role, %s (C129)', (store) => {
  test.each(
    changes.flatMap((said) => [
      { pipeline: 'on', said },
      { pipeline: 'off', said },
    ]),
  )(
    'work that sends $said, pipelining $pipeline, is committed, and replayed or refused',
    async ({ pipeline, said }) => {
      const service = testService(db, { BACKSTOP_PIPELINE: pipeline });
      const work = async (tx: Tx, principal: string): Promise<HttpResponse> => {
        await takeCoin(tx, principal);
        for (const text of said) await tx.query(text);
        await tx.query(`INSERT INTO ${tenant}.notes VALUES ('a note')`);
        return { statusCode: 201, body: 'noted' };
      };
      const handler = testHandler(service, work, store);
      const request = { principal: `p-${newKey()}`, key: newKey(), body: {} };
      await seedPlayer(db, request.principal);
      const first = await send(handler, request);
      expect([first.status, first.text]).toEqual([201, 'noted']);
      const again = await send(handler, request);
      expect(again.code ?? again.text).toBe(store === 'mutation' ? 'ALREADY_EXISTS' : 'noted');
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
      // The connection is as it was.
      const other = { principal: request.principal, key: newKey(), body: {} };
      expect((await send(handler, other)).status).toBe(201);
    },
  );
});

test('a role that may not update the records publishes nothing, though anybody may call (C129)', async () => {
  const [row] = await db.sql<{ id: string; owner: string }>(
    `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status, lease_owner, lease_expires_at)
     VALUES ('victim', sha256('e'), sha256('k'), '1:x', 'in_progress', gen_random_uuid(), now() + interval '1 minute')
     RETURNING id, lease_owner AS owner`,
  );
  const publish = [`SELECT publish_record($1, $2, 'forged')`, [row?.id, row?.owner]] as const;
  const purge = await openSession(db.purgeUrl); // It may read the tokens.
  await expect(purge.query(publish[0], [...publish[1]])).rejects.toThrow(
    'the role backstop_purge has no right to update idempotency_records',
  );
  const api = await openSession(db.apiUrl);
  await api.query(`CREATE TEMP TABLE idempotency_records (LIKE idempotency_records)`);
  await api.query(`INSERT INTO idempotency_records SELECT * FROM public.idempotency_records`);
  await api.query(publish[0], [...publish[1]]);
  const rows = await db.sql(`SELECT status FROM idempotency_records WHERE account_id = 'victim'`);
  expect(rows).toEqual([{ status: 'completed' }]);
});
