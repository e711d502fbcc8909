import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { spendCoins } from '../../../functions/players/spend-coins.ts';
import { transferCoins } from '../../../functions/players/transfer-coins.ts';
import type { HttpResponse } from '../../../shared/index.ts';
import { compareAndSwap, STALE } from '../../../shared/postgres/index.ts';
import {
  createTestDatabase,
  markersOf,
  openSession,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../../support/database.ts';
import { PATIENT } from '../../support/patience.ts';
import { newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { DONE, takeCoin, testHandler } from '../../support/test-handler.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
  const [row] = await db.sql<{ name: string }>('SELECT current_database() AS name');
  // What a session might have set must not decide: BEGIN says READ COMMITTED itself.
  await db.sql(`ALTER DATABASE ${row?.name} SET default_transaction_isolation = 'serializable'`);
});
afterAll(() => db.drop());

async function newPlayer(coins = 1000): Promise<string> {
  const principal = `p-${newKey()}`;
  await seedPlayer(db, principal, coins);
  return principal;
}

describe.each([{ pipeline: 'on' }, { pipeline: 'off' }])(
  'conflicts, pipelining $pipeline',
  ({ pipeline }) => {
    // Thirty at once wait for ten connections: on a busy machine for longer than a place in the
    // pool is waited for otherwise.
    const service = () =>
      testService(db, { ...PATIENT, BACKSTOP_PIPELINE: pipeline, BACKSTOP_POOL_MAX: '10' });

    test('ten writers of one row all get through (C59)', async () => {
      const principal = await newPlayer();
      const spend = service().mutation(spendCoins);
      const answers = await Promise.all(
        Array.from({ length: 10 }, () =>
          send(spend, { principal, key: newKey(), body: { amount: 7 } }),
        ),
      );
      expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200));
      expect(await playerOf(db, principal)).toEqual({ coins: 930, version: 11 });
    });

    test('transfers in every direction at once lose nothing, and nobody locks out another', async () => {
      const players = [await newPlayer(), await newPlayer(), await newPlayer()];
      const transfer = service().mutation(transferCoins);
      const answers = await Promise.all(
        Array.from({ length: 30 }, (_, n) => {
          const [principal, to] = [
            players[n % 3] as string,
            players[(n + 1 + (n % 2)) % 3] as string,
          ];
          return send(transfer, {
            principal,
            key: newKey(),
            path: '/transfers',
            body: { to, amount: 5 },
          });
        }),
      );
      expect(answers.map(({ status }) => status)).toEqual(Array(30).fill(200));
      const after = await Promise.all(players.map((player) => playerOf(db, player)));
      expect(after.reduce((sum, { coins }) => sum + coins, 0)).toBe(3000);
      expect(after.reduce((sum, { version }) => sum + version - 1, 0)).toBe(60);
    });

    test('a swap whose version moved is read again, and both changes stand (C66)', async () => {
      const principal = await newPlayer();
      let reads = 0;
      const handler = testHandler(service(), async (tx) =>
        compareAndSwap(tx, async () => {
          const { rows } = await tx.query<{ coins: string; data_version: string }>(
            'SELECT coins, data_version FROM players WHERE user_id = $1',
            [principal],
          );
          reads++;
          if (reads === 1)
            await db.sql(
              'UPDATE players SET coins = coins - 100, data_version = data_version + 1 WHERE user_id = $1',
              [principal],
            );
          const { rowCount } = await tx.query(
            'UPDATE players SET coins = $2, data_version = data_version + 1 WHERE user_id = $1 AND data_version = $3',
            [principal, Number(rows[0]?.coins) - 1, rows[0]?.data_version],
          );
          return rowCount === 1 ? DONE : STALE;
        }),
      );
      const sent = { principal, key: newKey(), body: {} };
      expect((await send(handler, sent)).status).toBe(200);
      expect(reads).toBe(2);
      expect(await playerOf(db, principal)).toEqual({ coins: 899, version: 3 });
      expect(await markersOf(db, principal)).toEqual([sent.key]);
    });

    test('a swap that never wins is CONTENTION, and leaves no trace', async () => {
      const principal = await newPlayer();
      let tries = 0;
      const handler = testHandler(service(), (tx) =>
        compareAndSwap(tx, async (): Promise<HttpResponse | typeof STALE> => {
          tries++;
          await takeCoin(tx, principal);
          return STALE;
        }),
      );
      const answer = await send(handler, { principal, key: newKey(), body: {} });
      expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
        409,
        'CONTENTION',
        '1',
      ]);
      expect(tries).toBe(10);
      expect(await playerOf(db, principal)).toEqual({ coins: 1000, version: 1 });
      expect(await markersOf(db, principal)).toEqual([]);
    });

    test('the victim of a deadlock runs again as a whole, step 0 included', async () => {
      const [one, two] = [await newPlayer(), await newPlayer()];
      const handler = testHandler(service(), async (tx) => {
        await takeCoin(tx, one);
        return takeCoin(tx, two);
      });
      const other = await openSession(db.adminUrl);
      await other.query(`SET deadlock_timeout = '60s'`); // So that ours is the victim.
      await other.query('BEGIN ISOLATION LEVEL READ COMMITTED');
      await other.query('UPDATE players SET coins = coins - 100 WHERE user_id = $1', [two]);
      const sent = { principal: one, key: newKey(), body: {} };
      const answering = send(handler, sent);
      await seenBlocked(db);
      await other.query('UPDATE players SET coins = coins - 100 WHERE user_id = $1', [one]);
      await other.query('COMMIT');
      expect((await answering).status).toBe(200);
      expect((await playerOf(db, one)).coins).toBe(899);
      expect((await playerOf(db, two)).coins).toBe(899);
      expect(await markersOf(db, one)).toEqual([sent.key]);
    });

    test('a session that is killed in the middle of the work runs again as a whole, on another connection (C52)', async () => {
      const principal = await newPlayer();
      const other = await openSession(db.adminUrl);
      await other.query('BEGIN');
      await other.query('SELECT FROM players WHERE user_id = $1 FOR UPDATE', [principal]);
      const answering = send(testHandler(service(), takeCoin), {
        principal,
        key: newKey(),
        body: {},
      });
      const [blocked] = await seenBlocked(db);
      await db.sql('SELECT pg_terminate_backend($1)', [blocked?.pid]);
      await eventually(
        async () => (await seenBlocked(db))[0]?.pid !== blocked?.pid,
        'a second attempt',
      );
      await other.query('COMMIT');
      expect((await answering).status).toBe(200);
      expect((await playerOf(db, principal)).coins).toBe(999);
    });

    test('the same client serves the next request after a failed mutation (C51)', async () => {
      const principal = await newPlayer();
      const single = testService(db, { BACKSTOP_PIPELINE: pipeline, BACKSTOP_POOL_MAX: '1' });
      const pidOf = testHandler(single, async (tx) => ({
        statusCode: 200,
        body: String((await tx.query('SELECT pg_backend_pid() AS pid')).rows[0]?.pid),
      }));
      const sent = () => ({ principal, key: newKey(), body: {} });
      const first = await send(pidOf, sent());
      expect(
        (
          await send(
            testHandler(single, (tx) => tx.query('SELECT 1 / 0') as never),
            sent(),
          )
        ).code,
      ).toBe('INTERNAL');
      const next = await send(pidOf, sent());
      expect([next.status, next.text]).toEqual([200, first.text]);
    });

    test('the next request is answered when backends were killed between two invocations (C54)', async () => {
      const principal = await newPlayer();
      const handler = testHandler(service(), takeCoin);
      expect((await send(handler, { principal, key: newKey(), body: {} })).status).toBe(200);
      await db.sql(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'backstop_api' AND datname = current_database()`,
      );
      expect((await send(handler, { principal, key: newKey(), body: {} })).status).toBe(200);
      expect((await playerOf(db, principal)).coins).toBe(998);
    });

    test('a constraint that fails at COMMIT is a definite failure (C145)', async () => {
      const principal = await newPlayer();
      await db.sql(
        `CREATE TABLE IF NOT EXISTS deferred (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)`,
      );
      await db.sql('GRANT INSERT, SELECT ON deferred TO backstop_api');
      const handler = testHandler(service(), async (tx) => {
        await tx.query('INSERT INTO deferred VALUES (1), (1)');
        return DONE;
      });
      expect((await send(handler, { principal, key: newKey(), body: {} })).code).toBe('INTERNAL');
      expect(await markersOf(db, principal)).toEqual([]);
    });

    test('a role without time limits is refused, and the message says what to set', async () => {
      const unlimited = testService({ apiUrl: db.adminUrl }, { BACKSTOP_PIPELINE: pipeline });
      const connecting = unlimited.database.pool.connect();
      await expect(connecting).rejects.toThrow(
        /statement_timeout is 0.*ALTER ROLE "\w+" SET statement_timeout/,
      );
      const answer = await send(testHandler(unlimited, takeCoin), {
        principal: 'p',
        key: newKey(),
        body: {},
      });
      expect(answer.code).toBe('INTERNAL');
    });
  },
);
