/** Connections whose server, or network, says nothing any more, and reads while Postgres is away. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { health } from '../../../functions/operations/health.ts';
import { getPlayer } from '../../../functions/players/get-player.ts';
import type { HttpResponse } from '../../../shared/index.ts';
import type { RecordTx } from '../../../shared/postgres/index.ts';
import type { Handler, Service } from '../../../shared/service/index.ts';
import {
  createTestDatabase,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../../support/database.ts';
import { type FaultProxy, startFaultProxy } from '../../support/fault-proxy.ts';
import { answerOf, httpEvent, lambdaContext, newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { STORES, takeCoin, testHandler } from '../../support/test-handler.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';

let db: TestDatabase;
let proxy: FaultProxy;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(async () => {
  proxy = await startFaultProxy(db.apiUrl);
});
afterEach(() => proxy.close());

/** Stands in the first statement on a connection, and in no other. */
const GREETING = 'idle_in_transaction_session_timeout';

type Store = (typeof STORES)[number];

function handlerOn(service: Service, store: Store, work = takeCoinOf): Handler {
  return testHandler(service, (tx, principal) => work(tx as RecordTx, principal), store);
}

const takeCoinOf = (tx: RecordTx, principal: string): Promise<HttpResponse> =>
  takeCoin(tx, principal);

async function newRequest() {
  const principal = `p-${newKey()}`;
  await seedPlayer(db, principal);
  return { principal, key: newKey(), body: {} };
}

const read = async (handler: Handler, principal: string, remainingMs = 28_000) =>
  answerOf(
    await handler(
      httpEvent({ method: 'GET', path: '/players/me', principal }),
      lambdaContext(remainingMs),
    ),
  );

const one = (pipeline: string) =>
  testService({ apiUrl: proxy.url }, { BACKSTOP_POOL_MAX: '1', BACKSTOP_PIPELINE: pipeline });

/** Until the pooled connection has lain idle for long enough to be doubted. */
async function rest(): Promise<void> {
  const sinceMs = Date.now();
  await eventually(async () => Date.now() - sinceMs > 300, 'a moment of rest');
}

describe.each(['on', 'off'])('on a pooled connection, pipelining %s', (pipeline) => {
  test('a record is claimed on another connection at once when the pooled one died in silence (core 6)', async () => {
    const handler = handlerOn(one(pipeline), 'recordMutation');
    const request = await newRequest();
    expect((await send(handler, request)).status).toBe(200);
    await rest();
    proxy.freezeOpen();
    const again = await send(handler, { ...request, key: newKey() }, lambdaContext(10_000));
    expect(again.status).toBe(200);
    expect((await playerOf(db, request.principal)).coins).toBe(998);
  });

  test('a read after a thaw with dead connections goes to a new one (C117, core 6)', async () => {
    const service = testService(
      { apiUrl: proxy.url },
      { BACKSTOP_POOL_MAX: '3', BACKSTOP_PIPELINE: pipeline },
    );
    const handler = service.query(getPlayer);
    const { principal } = await newRequest();
    const { pool } = service.database;
    const clients = await Promise.all([pool.connect(), pool.connect(), pool.connect()]);
    for (const client of clients) client.release();
    proxy.freezeOpen();
    const answer = await read(handler, principal, 12_000);
    expect([answer.status, answer.json['coins']]).toEqual([200, 1000]);
    // The connections of a proxy that forgot them are reset at the first byte instead.
    proxy.reset();
    expect((await read(handler, principal)).status).toBe(200);
    const lost = proxy.dropAfter('FROM players', 'reset');
    expect((await read(handler, principal)).status).toBe(200);
    await lost;
  });

  test('a read that waits too long is given up by its deadline, and so is its connection (C117)', async () => {
    const service = one(pipeline);
    const handler = service.query({
      name: 'slow',
      run: async ({ db: reads }) => {
        await reads.query('SELECT pg_advisory_xact_lock(117)');
        return { statusCode: 200 };
      },
    });
    const locker = await service.database.connectAside();
    try {
      await locker.query('SELECT pg_advisory_lock(117)');
      const answering = read(handler, 'p', 3000);
      await seenBlocked(db);
      expect((await answering).code).toBe('UNAVAILABLE');
      await locker.query('SELECT pg_advisory_unlock(117)');
      expect((await read(handler, 'p')).status).toBe(200);
    } finally {
      await locker.end();
    }
  });

  test('a wrong statement in a read stays 500, and so does one that would write (C117)', async () => {
    const service = one(pipeline);
    const asking = (text: string) =>
      service.query({
        name: 'asking',
        run: async ({ db: reads }) => {
          await reads.query(text);
          return { statusCode: 200 };
        },
      });
    const { principal } = await newRequest();
    for (const text of [
      'SELECT nonsense',
      'SELECT 1/0',
      `UPDATE players SET coins = 1 WHERE user_id = '${principal}'`,
    ]) {
      expect((await read(asking(text), principal)).code).toBe('INTERNAL');
    }
    expect((await playerOf(db, principal)).coins).toBe(1000);
    expect(service.database.pool.idleCount).toBe(1);
    expect((await read(asking('SELECT 1'), principal)).status).toBe(200);
  });
});

describe('on a new connection, and while Postgres is away', () => {
  const pipeline = 'on';

  test.each(STORES)(
    'the %s store serves a request on a third connection when the first connection checks are lost in silence (core 5)',
    async (store) => {
      const service = one(pipeline);
      const handler = handlerOn(service, store);
      const request = await newRequest();
      // That of the connection which is opened ahead, and that of the request's own.
      const lost = Promise.all([1, 2].map(() => proxy.dropAfter(GREETING, 'silence')));
      const answer = await send(handler, request, lambdaContext(12_000));
      await lost;
      expect(answer.status).toBe(200);
      expect((await send(handler, { ...request, key: newKey() })).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(998);
      expect([service.database.pool.totalCount, service.database.pool.idleCount]).toEqual([1, 1]);
    },
  );

  test('a request whose every connection check is lost is 503 long before its deadline, and the pool recovers (core 5)', async () => {
    const service = one(pipeline);
    const handler = handlerOn(service, 'mutation');
    const request = await newRequest();
    const losses = Array.from({ length: 9 }, () => proxy.dropAfter(GREETING, 'silence'));
    void Promise.all(losses);
    const answer = await send(handler, request, lambdaContext(25_000));
    expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
      503,
      'UNAVAILABLE',
      '1',
    ]);
    expect(proxy.traffic.connections).toBeGreaterThan(1);
    await proxy.pass();
    expect((await send(handler, request)).status).toBe(200);
  });

  test('the renewal of a lease that is lost in silence is sent again on another connection (core 5)', async () => {
    const handler = handlerOn(one(pipeline), 'recordMutation', async (tx, principal) => {
      await tx.renewLease();
      return takeCoin(tx, principal);
    });
    const request = await newRequest();
    const lost = proxy.dropAfter('SET lease_expires_at', 'silence');
    const answer = await send(handler, request, lambdaContext(12_000));
    await lost;
    expect(answer.status).toBe(200);
    expect((await playerOf(db, request.principal)).coins).toBe(999);
  });

  test('reads while Postgres is down from the start, or has gone silent, are 503 in time, and then 200 (C117)', async () => {
    const service = one(pipeline);
    const handler = service.query(getPlayer);
    const { principal } = await newRequest();
    const expectAway = async (remainingMs: number) => {
      const startedMs = performance.now();
      const answer = await read(handler, principal, remainingMs);
      expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
        503,
        'UNAVAILABLE',
        '1',
      ]);
      expect(answer.json).toMatchObject({ retryable: true });
      expect(performance.now() - startedMs).toBeLessThan(remainingMs);
    };
    await proxy.refuse();
    await expectAway(5000);
    await proxy.pass();
    proxy.blackHole();
    await expectAway(3000);
    await proxy.pass();
    expect((await read(handler, principal)).status).toBe(200);
    proxy.blackHole();
    await expectAway(3000);
    await proxy.pass();
    expect((await read(handler, principal)).status).toBe(200);
    await proxy.refuse();
    await expectAway(5000);
    await proxy.pass();
    expect((await read(handler, principal)).status).toBe(200);
  });

  test('the health check answers in time, and gives a dead connection up (core 6)', async () => {
    const service = one(pipeline);
    const ask = async () => (await read(service.query(health()), '')).json['dependencies'];
    expect(await ask()).toMatchObject({ postgres: 'up' });
    proxy.freezeOpen();
    expect(await ask()).toMatchObject({ postgres: 'up' });
    proxy.blackHole();
    expect(await ask()).toMatchObject({ postgres: 'down' });
    await proxy.pass();
    expect(await ask()).toMatchObject({ postgres: 'up' });
  });
});

test('a query beside the transaction that has the only connection is told to use tx (library A5)', async () => {
  const service = testService(db, {
    BACKSTOP_POOL_MAX: '1',
    BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS: '1000',
  });
  const beside: Promise<unknown>[] = [];
  const handler = handlerOn(service, 'mutation', async (tx, principal) => {
    const { pool } = service.database;
    beside.push(pool.query('SELECT 1'), pool.connect());
    await Promise.allSettled(beside);
    return takeCoin(tx, principal);
  });
  expect((await send(handler, await newRequest())).status).toBe(200);
  for (const waited of beside) await expect(waited).rejects.toThrow(/pool's 1 was in use.* use tx/);
});
