import type { Client } from 'pg';
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
} from 'vitest';
import { migrateAll } from '../../../functions/operations/migrations.ts';
import { startPostgres } from '../../../infra/local/postgres.ts';
import { createRunFolder } from '../../../infra/local/run-folder.ts';
import { lookUpCommit } from '../../../shared/postgres/commit-fate.ts';
import { claimMarker, proofOfMarker } from '../../../shared/postgres/step-zero.ts';
import type { Send } from '../../../shared/postgres/transaction.ts';
import type { Service } from '../../../shared/service/index.ts';
import {
  createTestDatabase,
  markersOf,
  openSession,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../../support/database.ts';
import { type FaultProxy, startFaultProxy } from '../../support/fault-proxy.ts';
import { inTime } from '../../support/patience.ts';
import { lambdaContext, newKey, send } from '../../support/requests.ts';
import { rewritingProxy } from '../../support/rewriting-proxy.ts';
import { testService } from '../../support/service.ts';
import { takeCoin, testHandler } from '../../support/test-handler.ts';
import { urlOf } from '../../support/urls.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';

let db: TestDatabase;
let proxy: FaultProxy;
beforeAll(async () => {
  db = await createTestDatabase();
  await db.sql('CREATE SEQUENCE runs');
  await db.sql('GRANT USAGE ON SEQUENCE runs TO backstop_api');
});
afterAll(() => db.drop());
beforeEach(async () => {
  proxy = await startFaultProxy(db.apiUrl);
});
afterEach(() => proxy.close());

/** The command, and not the READ COMMITTED of BEGIN. */
const COMMIT = 'COMMIT\0';

async function newRequest() {
  const principal = `p-${newKey()}`;
  await seedPlayer(db, principal);
  return { principal, key: newKey(), body: {} };
}

/** A deferred trigger: what it does happens at COMMIT, in the backend of the request. */
async function atCommit(principal: string, statement: string): Promise<void> {
  const name = `t${newKey().replaceAll('-', '')}`;
  await db.sql(`CREATE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
    $$ BEGIN IF NEW.user_id = '${principal}' THEN ${statement}; END IF; RETURN NEW; END $$`);
  await db.sql(`CREATE CONSTRAINT TRIGGER ${name} AFTER UPDATE ON players
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ${name}()`);
  onTestFinished(async () => {
    await db.sql(`DROP FUNCTION ${name} CASCADE`);
  });
}

describe.each([{ pipeline: 'on' }, { pipeline: 'off' }])(
  'a lost connection, pipelining $pipeline',
  ({ pipeline }) => {
    const service = (environment: Record<string, string> = {}) =>
      testService({ apiUrl: proxy.url }, { BACKSTOP_PIPELINE: pipeline, ...environment });

    test('a COMMIT whose answer is lost is looked up, and was a success (C65)', async () => {
      const request = await newRequest();
      const handler = testHandler(service(), takeCoin);
      const lost = proxy.dropAfter(COMMIT);
      const answer = await send(handler, request);
      await lost;
      expect([answer.status, answer.text]).toEqual([200, 'done']);
      expect(Date.parse(answer.headers['idempotency-expires'] as string)).toBeGreaterThan(
        Date.now(),
      );
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
      expect((await send(handler, request)).code).toBe('ALREADY_EXISTS');
    });

    test('a COMMIT that is lost itself is looked up, was an abort, and the whole runs again', async () => {
      const request = await newRequest();
      const lost = proxy.dropBefore(COMMIT);
      const answer = await send(testHandler(service(), takeCoin), request);
      await lost;
      expect(answer.status).toBe(200);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });

    test('a lost COMMIT is 503 OUTCOME_UNKNOWN when nobody can be asked, and the retry is safe (C65)', async () => {
      const request = await newRequest();
      const handler = testHandler(service(), takeCoin);
      const lost = proxy.dropAfter(COMMIT).then(() => proxy.refuse());
      const answer = await send(handler, request, lambdaContext(5000));
      await lost;
      expect([answer.status, answer.code]).toEqual([503, 'OUTCOME_UNKNOWN']);
      expect(answer.headers['retry-after']).toBe('1');
      expect(answer.json).toMatchObject({ retryable: true });
      await proxy.pass();
      expect((await send(handler, request)).code).toBe('ALREADY_EXISTS');
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });

    test('a COMMIT that is never answered is looked up on another connection when the time is up', async () => {
      const handler = testHandler(service(), takeCoin);
      const answer = await inTime(async () => {
        const request = await newRequest();
        const lost = proxy.dropAfter(COMMIT, 'silence');
        const answered = await send(handler, request, lambdaContext(3000));
        await lost;
        expect((await playerOf(db, request.principal)).coins).toBe(999);
        return answered;
      }, 'OUTCOME_UNKNOWN');
      expect([answer.status, answer.text]).toEqual([200, 'done']);
    });

    test('a COMMIT still in progress is waited for', async () => {
      const request = await newRequest();
      await atCommit(request.principal, 'PERFORM pg_advisory_xact_lock(42)');
      const holder = await openSession(db.adminUrl);
      await holder.query('BEGIN');
      await holder.query('SELECT pg_advisory_xact_lock(42)');
      const asked = proxy.count('pg_xact_status');
      const answering = send(testHandler(service(), takeCoin), request, lambdaContext(20_000));
      await seenBlocked(db);
      proxy.reset();
      await eventually(async () => asked() >= 2, 'the fate asked for twice');
      await holder.query('COMMIT');
      expect((await answering).status).toBe(200);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });

    test('a FATAL error at COMMIT is no answer either, and is looked up', async () => {
      const request = await newRequest();
      await db.sql('DROP SEQUENCE IF EXISTS kills');
      await db.sql('CREATE SEQUENCE kills');
      await atCommit(
        request.principal,
        `IF nextval('kills') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF`,
      );
      expect((await send(testHandler(service(), takeCoin), request)).status).toBe(200);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });

    test('a serialization failure at COMMIT itself makes the whole run again, once in effect (C145)', async () => {
      const request = await newRequest();
      const failures = `f${newKey().replaceAll('-', '')}`;
      await db.sql(`CREATE SEQUENCE ${failures}`);
      await atCommit(
        request.principal,
        `IF nextval('${failures}') = 1 THEN RAISE EXCEPTION 'collided' USING ERRCODE = '40001'; END IF`,
      );
      expect((await send(testHandler(service(), takeCoin), request)).status).toBe(200);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });

    test('a statement that is cancelled at COMMIT leaves no effect and an unused key (C145)', async () => {
      const request = await newRequest();
      await atCommit(request.principal, `RAISE EXCEPTION 'late' USING ERRCODE = '57014'`);
      const answer = await send(testHandler(service(), takeCoin), request);
      expect([answer.status, answer.code]).toEqual([409, 'CONTENTION']);
      expect(await markersOf(db, request.principal)).toEqual([]);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 1000, version: 1 });
    });

    test('without a key a lost COMMIT is not safe to resend, and says so', async () => {
      const request = { ...(await newRequest()), key: null };
      const handler = testHandler(service({ BACKSTOP_KEY_MODE: 'optional' }), takeCoin);
      const lost = proxy.dropAfter(COMMIT);
      const answer = await send(handler, request);
      await lost;
      expect([answer.status, answer.code]).toEqual([503, 'OUTCOME_UNKNOWN']);
      expect(answer.headers['retry-after']).toBeUndefined();
      expect(answer.json).toMatchObject({ retryable: false });
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });

    test('a connection that is lost before COMMIT makes the whole run again', async () => {
      const request = await newRequest();
      const lost = proxy.dropBefore('UPDATE players');
      expect((await send(testHandler(service(), takeCoin), request)).status).toBe(200);
      await lost;
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });

    test('a connection that is lost again and again is 503 after a bounded number of tries, without effect', async () => {
      const request = await newRequest();
      const handler = testHandler(service(), takeCoin);
      const losses = Array.from({ length: 5 }, () => proxy.dropBefore('UPDATE players'));
      const answer = await send(handler, request);
      await Promise.all(losses);
      expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
        503,
        'UNAVAILABLE',
        '1',
      ]);
      expect(await markersOf(db, request.principal)).toEqual([]);
      expect((await send(handler, request)).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });

    test('a server that goes silent in the middle is 503 in time, and the next request works (C53, C83)', async () => {
      const request = await newRequest();
      const handler = testHandler(service({ BACKSTOP_POOL_MAX: '1' }), async (tx, principal) => {
        await tx.query('SELECT 1'); // BEGIN is answered: silence there is another connection's turn.
        return takeCoin(tx, principal);
      });
      const held = proxy.holdAt('UPDATE players');
      const startedMs = performance.now();
      const answer = await send(handler, request, lambdaContext(5000));
      await held;
      expect([answer.status, answer.code]).toEqual([503, 'UNAVAILABLE']);
      // At its deadline, and not when the server gives up after half a minute.
      expect(performance.now() - startedMs).toBeLessThan(20_000);
      await proxy.pass();
      expect((await send(handler, request)).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });

    test('a database that is not there is 503, and 200 when it is back', async () => {
      const request = await newRequest();
      const handler = testHandler(service(), takeCoin);
      await proxy.refuse();
      const answer = await send(handler, request);
      expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
        503,
        'UNAVAILABLE',
        '1',
      ]);
      await proxy.pass();
      expect((await send(handler, request)).status).toBe(200);
    });

    test('nothing behind it runs by itself when BEGIN fails, and the whole runs again', async () => {
      const request = await newRequest();
      const url = await breakFirstBegin(db.apiUrl);
      const broken = testService({ apiUrl: url }, { BACKSTOP_PIPELINE: pipeline });
      const [before] = await db.sql<{ last: string }>(`SELECT nextval('runs') AS last`);
      const handler = testHandler(broken, async (tx, principal) => {
        const sent = [tx.query(`SELECT nextval('runs')`), takeCoin(tx, principal)];
        await Promise.all(sent);
        return { statusCode: 200, body: 'done' };
      });
      expect((await send(handler, request)).status).toBe(200);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
      const [after] = await db.sql<{ last: string }>(`SELECT last_value AS last FROM runs`);
      expect(Number(after?.last) - Number(before?.last)).toBe(1);
    });

    test('a client comes back to the pool idle, or not at all', async () => {
      const { database, ...rest } = service({ BACKSTOP_POOL_MAX: '2' });
      const handler = testHandler({ database, ...rest }, takeCoin);
      for (const fault of ['none', 'lost', 'threw', 'none']) {
        if (fault === 'lost') void proxy.dropBefore('UPDATE players');
        const work =
          fault === 'threw'
            ? testHandler({ database, ...rest }, (tx) => tx.query('SELECT 1/0') as never)
            : handler;
        await send(work, await newRequest());
        expect(database.pool.idleCount).toBe(database.pool.totalCount);
        const states = await db.sql<{ state: string }>(
          `SELECT state FROM pg_stat_activity WHERE usename = 'backstop_api' AND datname = current_database()`,
        );
        expect(states.map(({ state }) => state)).not.toContain('idle in transaction');
      }
    });
  },
);

/** A proxy that misspells the first BEGIN that passes: the server answers it with an error. */
function breakFirstBegin(targetUrl: string): Promise<string> {
  let isBroken = false;
  return rewritingProxy(targetUrl, (chunk) => {
    const at = isBroken ? -1 : chunk.indexOf('BEGIN ISOLATION');
    if (at < 0) return chunk;
    isBroken = true;
    chunk.write('BOGUS', at);
    return chunk;
  });
}

describe('the fate of a COMMIT', () => {
  interface Claim {
    readonly xid: string;
    readonly claimedAtUs: string;
  }

  async function fate(key: string, claim: Claim, principal = 'fate') {
    const mark = proofOfMarker({ principal, key }, claim);
    const { database } = service;
    return (await lookUpCommit(database, mark, claim.xid, Date.now() + 20_000)).kind;
  }

  let service: Service;
  let session: Client;
  beforeEach(async () => {
    service = testService(db);
    session = await openSession(db.apiUrl);
  });

  async function transaction(key: string, end: 'COMMIT' | 'ROLLBACK'): Promise<Claim> {
    await session.query('BEGIN DEFERRABLE');
    const send: Send = (text, values) => session.query(text, values as unknown[]);
    const claim = await claimMarker(send, { principal: 'fate', key }, Date.now() + 60_000);
    await session.query(end);
    return claim as Claim;
  }

  test('a commit is proved only by a marker that bears that very transaction', async () => {
    const claim = await transaction('one', 'COMMIT');
    const other = await transaction('two', 'COMMIT');
    expect(await fate('one', claim)).toBe('committed');
    expect(await fate('one', { ...claim, xid: other.xid })).toBe('unknown');
    expect(await fate('none', claim)).toBe('unknown');
  });

  test('the same transaction number and key with another time is another claim, as after a restore (core V4)', async () => {
    const claim = await transaction('restored', 'COMMIT');
    const before = String(BigInt(claim.claimedAtUs) - 1n);
    expect(await fate('restored', { ...claim, claimedAtUs: before })).toBe('unknown');
    expect(await fate('restored', claim)).toBe('committed');
  });

  test('the time of a claim compares equal to itself, to the microsecond', async () => {
    for (let n = 0; n < 40; n++) {
      expect(await fate(`time-${n}`, await transaction(`time-${n}`, 'COMMIT'))).toBe('committed');
    }
  });

  test('a transaction that was rolled back is found aborted', async () => {
    expect(await fate('three', await transaction('three', 'ROLLBACK'))).toBe('aborted');
  });

  test('a transaction number from the future, or one that nobody knows, is unknown', async () => {
    const claimedAtUs = '1';
    expect(await fate('one', { xid: '9223372036854775807', claimedAtUs })).toBe('unknown');
    expect(await fate('one', { xid: '3', claimedAtUs })).toBe('unknown');
  });
});

test('the marker bears the number of its own transaction, and of no subtransaction', async () => {
  const request = await newRequest();
  const seen: unknown[] = [];
  const handler = testHandler(testService(db), async (tx, principal) => {
    const { rows } = await tx.query(
      `SELECT xmin::text = (pg_current_xact_id()::xid)::text AS "isOwn"
         FROM player_mutation_idempotency WHERE user_id = $1`,
      [principal],
    );
    seen.push(...rows);
    return takeCoin(tx, principal);
  });
  expect((await send(handler, request)).status).toBe(200);
  expect(seen).toEqual([{ isOwn: true }]);
});

describe.each(['08006', '57P01'])(
  'a proxy that answers COMMIT with an ERROR of its own, %s (core S1)',
  (code) => {
    test('the success is found out when the transaction had committed', async () => {
      const request = await newRequest();
      const url = await answerCommitWith(db.apiUrl, code, 'after');
      const answer = await send(testHandler(testService({ apiUrl: url }), takeCoin), request);
      expect([answer.status, answer.text]).toEqual([200, 'done']);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });

    test('the whole runs again when the transaction had not committed', async () => {
      const request = await newRequest();
      const url = await answerCommitWith(db.apiUrl, code, 'before');
      const answer = await send(testHandler(testService({ apiUrl: url }), takeCoin), request);
      expect([answer.status, answer.text]).toEqual([200, 'done']);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });
  },
);

/** A proxy that answers the first COMMIT by itself: once it was carried out, or in its place. */
async function answerCommitWith(
  targetUrl: string,
  code: string,
  when: 'before' | 'after',
): Promise<string> {
  const fields = `SERROR\0VERROR\0C${code}\0Mthe backend was lost\0Rproxy\0\0`;
  const error = Buffer.alloc(5 + fields.length);
  error.write('E');
  error.writeInt32BE(4 + fields.length, 1);
  error.write(fields, 5);
  const idle = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);
  let isDone = false;
  return rewritingProxy(targetUrl, (chunk, answer, target) => {
    if (isDone || !chunk.includes(COMMIT)) return chunk;
    isDone = true;
    answer(Buffer.concat([error, idle]));
    if (when === 'before') target.destroy();
    return when === 'before' ? undefined : chunk;
  });
}

describe.each(['on', 'off'])(
  'a connection that died in silence, pipelining %s (core 6)',
  (pipeline) => {
    test('a BEGIN without an answer gives the connection up, and another one serves the request', async () => {
      const handler = testHandler(
        testService({ apiUrl: proxy.url }, { BACKSTOP_PIPELINE: pipeline, BACKSTOP_POOL_MAX: '1' }),
        takeCoin,
      );
      expect((await send(handler, await newRequest())).status).toBe(200);
      const { connections } = proxy.traffic;
      proxy.freezeOpen();
      const request = await newRequest();
      const startedMs = performance.now();
      expect((await send(handler, request, lambdaContext(28_000))).status).toBe(200);
      expect(proxy.traffic.connections).toBe(connections + 1);
      // Half of the request's time: without the limit on BEGIN it is used up whole, and ends in 503.
      expect(performance.now() - startedMs).toBeLessThan(14_000);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });
  },
);

test('a process survives that Postgres restarts while it is idle, and serves the next request (C55)', async () => {
  const folder = await createRunFolder();
  const server = await startPostgres({ runDir: folder.path });
  onTestFinished(async () => {
    await server.close();
    await folder.remove();
  });
  await migrateAll(server.url);
  const { database, ...rest } = testService({
    apiUrl: urlOf(server.url, { role: 'backstop_api' }),
  });
  const admin = await openSession(server.url);
  await admin.query(`INSERT INTO players (user_id, coins) VALUES ('idle', 10)`);
  const handler = testHandler({ database, ...rest }, takeCoin);
  const request = () => ({ principal: 'idle', key: newKey(), body: {} });
  expect((await send(handler, request())).status).toBe(200);
  await server.stop();
  expect((await send(handler, request())).code).toBe('UNAVAILABLE');
  await server.start();
  expect((await send(handler, request())).status).toBe(200);
}, 60_000);
