/**
 * Behind pgbouncer in transaction mode, where each transaction may run on another connection of
 * the server: nothing of the protocol may depend on the session.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { INSUFFICIENT_COINS } from '../../../functions/problems.ts';
import { Problem } from '../../../shared/index.ts';
import {
  createTestDatabase,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../../support/database.ts';
import { hasPgbouncer, startPgbouncer } from '../../support/pgbouncer.ts';
import { newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { DONE, STORES, takeCoin, testHandler } from '../../support/test-handler.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());

test('a pgbouncer is there to test with (C144)', ({ skip }) => {
  if (!process.env['CI']) skip(!hasPgbouncer, 'no Debian or Ubuntu to fetch pgbouncer from');
  expect(hasPgbouncer).toBe(true);
});

describe.runIf(hasPgbouncer).each(['on', 'off'])('a pooler, pipelining %s (C144)', (pipeline) => {
  test('both stores keep the contract, over more clients than the pooler has connections', async () => {
    const url = await startPgbouncer(db.apiUrl);
    const service = testService(
      { apiUrl: url },
      { BACKSTOP_PIPELINE: pipeline, BACKSTOP_POOL_MAX: '3' },
    );
    for (const store of STORES) {
      const handlerOf = (work: Parameters<typeof testHandler>[1]) =>
        testHandler(service, work, store);
      const principal = `p-${newKey()}`;
      await seedPlayer(db, principal);
      const requests = Array.from({ length: 10 }, () => ({ principal, key: newKey(), body: {} }));
      const take = handlerOf(takeCoin);
      // Each twice at once, and once more.
      const answers = await Promise.all(
        [...requests, ...requests].map((request) => send(take, request)),
      );
      expect(
        answers.filter(({ status, headers }) => status === 200 && !headers['idempotency-replayed']),
      ).toHaveLength(10);
      for (const request of requests) {
        const again = await send(take, request);
        expect(again.code ?? again.headers['idempotency-replayed']).toBe(
          store === 'mutation' ? 'ALREADY_EXISTS' : 'true',
        );
      }
      expect((await playerOf(db, principal)).coins).toBe(990);

      const refused = handlerOf(async (tx) => {
        await takeCoin(tx, principal);
        return new Problem(INSUFFICIENT_COINS, 'no');
      });
      expect((await send(refused, { principal, key: newKey(), body: {} })).status).toBe(402);
      const nested = handlerOf(async (tx) => {
        await tx.savepoint(() => tx.query('SELECT 1/0')).catch(() => {});
        return DONE;
      });
      expect((await send(nested, { principal, key: newKey(), body: {} })).status).toBe(200);
      expect((await playerOf(db, principal)).coins).toBe(990);
    }
    const [open] = await db.sql<{ count: number }>(
      `SELECT count(*)::int FROM pg_stat_activity
        WHERE datname = current_database() AND state LIKE 'idle in transaction%'`,
    );
    expect(open?.count).toBe(0);
  });
});
