import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { spendCoins } from '../../../functions/players/spend-coins.ts';
import {
  createTestDatabase,
  markersOf,
  openSession,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../../support/database.ts';
import { inTime } from '../../support/patience.ts';
import { lambdaContext, newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { DONE, takeCoin, testHandler } from '../../support/test-handler.ts';
import { seenBlocked } from '../../support/waiting.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
  await db.sql('CREATE SEQUENCE runs');
  await db.sql('GRANT USAGE ON SEQUENCE runs TO backstop_api');
});
afterAll(() => db.drop());

async function newRequest() {
  const principal = `p-${newKey()}`;
  await seedPlayer(db, principal);
  return { principal, key: newKey(), body: { amount: 1 } };
}

/** Another request's transaction, holding the same claim, under the test's control. */
async function holdClaim({ principal, key }: { principal: string; key: string }) {
  const session = await openSession(db.apiUrl);
  await session.query('BEGIN DEFERRABLE');
  await session.query(`SELECT claim_marker($1, $2, now() + interval '1 minute')`, [principal, key]);
  return session;
}

describe.each([{ pipeline: 'on' }, { pipeline: 'off' }])(
  'the claim, pipelining $pipeline',
  ({ pipeline }) => {
    const service = () => testService(db, { BACKSTOP_PIPELINE: pipeline });

    test('a used key outranks all that is sent behind it, and none of that runs', async () => {
      const request = await newRequest();
      const handler = testHandler(service(), async (tx, principal) => {
        const sent = [
          tx.query(`SELECT nextval('runs')`),
          tx.query('UPDATE players SET coins = 0 WHERE user_id = $1', [principal]),
        ];
        await Promise.allSettled(sent);
        throw new Error('what the work makes of the answers it never got');
      });
      await send(testHandler(service(), takeCoin), request);
      const [before] = await db.sql<{ last_value: string }>(
        'SELECT last_value, is_called FROM runs',
      );
      expect((await send(handler, request)).code).toBe('ALREADY_EXISTS');
      expect((await db.sql('SELECT last_value, is_called FROM runs'))[0]).toEqual(before);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });

    test('a used key outranks a stale If-Match', async () => {
      const request = { ...(await newRequest()), headers: { 'if-match': '"1"' } };
      const spend = service().mutation(spendCoins);
      expect((await send(spend, request)).status).toBe(200);
      expect((await send(spend, request)).code).toBe('ALREADY_EXISTS');
      expect((await send(spend, { ...request, key: newKey() })).code).toBe('VERSION_MISMATCH');
    });

    test('the key is used up when the owner that was waited for commits (C47)', async () => {
      const request = await newRequest();
      const owner = await holdClaim(request);
      const waiting = send(testHandler(service(), takeCoin), request);
      await seenBlocked(db);
      await owner.query('COMMIT');
      expect((await waiting).code).toBe('ALREADY_EXISTS');
      expect((await playerOf(db, request.principal)).coins).toBe(1000);
    });

    test('the claim is ours when the owner that was waited for rolls back (C47)', async () => {
      const request = await newRequest();
      const owner = await holdClaim(request);
      const waiting = send(testHandler(service(), takeCoin), request);
      await seenBlocked(db);
      await owner.query('ROLLBACK');
      expect((await waiting).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });

    test('the claim is ours when the owner that was waited for dies (C10)', async () => {
      const request = await newRequest();
      await holdClaim(request);
      const waiting = send(testHandler(service(), takeCoin), request);
      const [blocked] = await seenBlocked(db);
      await db.sql('SELECT pg_terminate_backend($1)', [blocked?.blockers[0]]);
      expect((await waiting).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });

    test('the wait for the owner ends at the deadline, as ABORTED', async () => {
      const request = await newRequest();
      await holdClaim(request);
      const handler = testHandler(service(), takeCoin);
      const answer = await inTime(() => send(handler, request, lambdaContext(2000)));
      expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
        409,
        'ABORTED',
        '1',
      ]);
      expect((await playerOf(db, request.principal)).coins).toBe(1000);
    });

    test('a wait for rows inside the work ends at the deadline, as CONTENTION', async () => {
      const request = await newRequest();
      const other = await openSession(db.adminUrl);
      await other.query('BEGIN');
      await other.query('SELECT FROM players WHERE user_id = $1 FOR UPDATE', [request.principal]);
      const handler = testHandler(service(), takeCoin);
      const answer = await inTime(() => send(handler, request, lambdaContext(2000)));
      expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
        409,
        'CONTENTION',
        '1',
      ]);
      expect(await markersOf(db, request.principal)).toEqual([]);
    });

    test('a claim waits for a purge that holds its row, and claims anew once the row is gone (C49)', async () => {
      const request = await newRequest();
      await send(testHandler(service(), takeCoin), request);
      const purge = await openSession(db.purgeUrl);
      await purge.query('BEGIN');
      await purge.query('DELETE FROM player_mutation_idempotency WHERE user_id = $1', [
        request.principal,
      ]);
      const waiting = send(testHandler(service(), takeCoin), request);
      await seenBlocked(db);
      await purge.query('COMMIT');
      expect((await waiting).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(998);
    });

    test('a purge that rolls back leaves the key used up', async () => {
      const request = await newRequest();
      await send(testHandler(service(), takeCoin), request);
      const purge = await openSession(db.purgeUrl);
      await purge.query('BEGIN');
      await purge.query('DELETE FROM player_mutation_idempotency WHERE user_id = $1', [
        request.principal,
      ]);
      const waiting = send(testHandler(service(), takeCoin), request);
      await seenBlocked(db);
      await purge.query('ROLLBACK');
      expect((await waiting).code).toBe('ALREADY_EXISTS');
    });

    test('a process clock that is minutes off decides nothing (C61)', async () => {
      const realNow = Date.now.bind(Date);
      for (const skewMs of [180_000, -180_000]) {
        const clock = vi.spyOn(Date, 'now').mockImplementation(() => realNow() + skewMs);
        try {
          const request = await newRequest();
          let lockTimeout = '';
          const answer = await send(
            testHandler(service(), async (tx, principal) => {
              const { rows } = await tx.query<{ lock_timeout: string }>('SHOW lock_timeout');
              lockTimeout = rows[0]?.lock_timeout ?? '';
              return takeCoin(tx, principal);
            }),
            request,
            lambdaContext(25_000),
          );
          expect(answer.status).toBe(200);
          const expiresMs = Date.parse(answer.headers['idempotency-expires'] as string);
          expect(Math.abs(expiresMs - realNow() - 3_600_000)).toBeLessThan(60_000);
          expect(millisecondsOf(lockTimeout)).toBeGreaterThan(8000);
          expect(millisecondsOf(lockTimeout)).toBeLessThanOrEqual(24_100);
        } finally {
          clock.mockRestore();
        }
      }
    });

    test('a query that the work sends and does not wait for is in the transaction (C84)', async () => {
      const request = await newRequest();
      const handler = testHandler(service(), async (tx, principal) => {
        void takeCoin(tx, principal);
        return DONE;
      });
      expect((await send(handler, request)).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });

    test('a query after the work has settled is refused, and not run by itself', async () => {
      const request = await newRequest();
      let late: (() => Promise<unknown>) | undefined;
      const handler = testHandler(service(), async (tx, principal) => {
        late = () => takeCoin(tx, principal);
        return takeCoin(tx, principal);
      });
      await send(handler, request);
      await expect(late?.()).rejects.toThrow('the work has settled');
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });

    test('an error that the work swallowed is not a success, since the tag says ROLLBACK', async () => {
      const request = await newRequest();
      let isBroken = true;
      const handler = testHandler(service(), async (tx, principal) => {
        await takeCoin(tx, principal);
        if (isBroken) await tx.query('SELECT 1 / 0').catch(() => {});
        return DONE;
      });
      expect((await send(handler, request)).code).toBe('INTERNAL');
      expect((await playerOf(db, request.principal)).coins).toBe(1000);
      expect(await markersOf(db, request.principal)).toEqual([]);
      isBroken = false;
      expect((await send(handler, request)).status).toBe(200);
    });

    test('an error that the work swallowed and refused over is kept as a refusal', async () => {
      const request = await newRequest();
      const handler = testHandler(service(), async (tx, principal) => {
        await takeCoin(tx, principal);
        await tx.query('SELECT 1 / 0').catch(() => {});
        return { statusCode: 409, body: 'no' };
      });
      expect((await send(handler, request)).text).toBe('no');
      expect((await playerOf(db, request.principal)).coins).toBe(1000);
      expect(await markersOf(db, request.principal)).toEqual([request.key]);
    });
  },
);

function millisecondsOf(setting: string): number {
  const [, number, unit] = /^(\d+)(ms|s)?$/.exec(setting) ?? [];
  return Number(number) * (unit === 's' ? 1000 : 1);
}

describe('the function claim_marker itself', () => {
  test('claim_marker past the deadline raises IDM02 and claims nothing', async () => {
    const { principal, key } = await newRequest();
    const session = await openSession(db.apiUrl);
    await session.query('BEGIN DEFERRABLE');
    const claim = session.query(`SELECT claim_marker($1, $2, clock_timestamp())`, [principal, key]);
    await expect(claim).rejects.toMatchObject({ code: 'IDM02' });
    expect(await markersOf(db, principal)).toEqual([]);
  });

  test('a deadline less than a millisecond away is 1 ms of lock_timeout, and not none', async () => {
    const { principal, key } = await newRequest();
    await holdClaim({ principal, key });
    const session = await openSession(db.apiUrl);
    await session.query('BEGIN DEFERRABLE');
    const claim = session.query(
      `SELECT claim_marker($1, $2, clock_timestamp() + interval '900 us')`,
      [principal, key],
    );
    await expect(claim).rejects.toMatchObject({ code: expect.stringMatching(/^(55P03|IDM02)$/) });
  });

  test('claim_marker outside a DEFERRABLE transaction ends its own backend', async () => {
    const { principal, key } = await newRequest();
    for (const begin of ['SELECT 1', 'BEGIN']) {
      const session = await openSession(db.apiUrl);
      await session.query(begin);
      const claim = session.query(`SELECT claim_marker($1, $2, now() + interval '1 minute')`, [
        principal,
        key,
      ]);
      await expect(claim).rejects.toMatchObject({ code: '57P01' });
      await expect(session.query('SELECT 1')).rejects.toThrow();
    }
    expect(await markersOf(db, principal)).toEqual([]);
  });
});
