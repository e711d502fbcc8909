import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import * as z from 'zod/mini';
import { createPurchase } from '../../functions/purchases/create-purchase.ts';
import { getPurchase } from '../../functions/purchases/get-purchase.ts';
import type { HttpResponse } from '../../shared/index.ts';
import type { RecordTx } from '../../shared/postgres/index.ts';
import type { Handler } from '../../shared/service/index.ts';
import {
  createTestDatabase,
  openSession,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../support/database.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { captureOutput } from '../support/output.ts';
import {
  answerOf,
  httpEvent,
  lambdaContext,
  newKey,
  restEvent,
  send,
} from '../support/requests.ts';
import { testService } from '../support/service.ts';
import { seenBlocked } from '../support/waiting.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());

const PATH = '/purchases';

async function newRequest(body: unknown = { n: 1 }) {
  const principal = `p-${newKey()}`;
  await seedPlayer(db, principal);
  return { principal, key: newKey(), path: PATH, body };
}

type Work = (tx: RecordTx, principal: string) => Promise<HttpResponse>;

/** One execution environment with a record function around any work. */
function recordHandler(work: Work, leaseMs = 30_000, url = db.apiUrl): Handler {
  const service = testService(
    { apiUrl: url },
    { BACKSTOP_LEASE_MS: String(leaseMs), BACKSTOP_LEASE_RENEWAL: 'on' },
  );
  return service.recordMutation({
    name: 'probe',
    body: z.unknown(),
    stateUrl: '/players/me',
    run: ({ once, principal }) => once((tx) => work(tx, principal)),
  });
}

/** One coin less, and `text` as the answer. */
const taking =
  (text: string): Work =>
  async (tx, principal) => {
    await tx.query('UPDATE players SET coins = coins - 1 WHERE user_id = $1', [principal]);
    return { statusCode: 201, headers: { location: `/${text}` }, body: text };
  };

/** As `taking`, but stands still before its effect until told. */
function gated(text: string) {
  const inside = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const work: Work = async (tx, principal) => {
    inside.resolve();
    await gate.promise;
    return taking(text)(tx, principal);
  };
  return { work, isInside: inside.promise, open: () => gate.resolve() };
}

interface Row {
  readonly status: string;
  readonly owner: string;
  readonly created: string;
  readonly expires: string | null;
  readonly isLive: boolean;
}

async function rowOf(principal: string): Promise<Row | undefined> {
  const [row] = await db.sql<Row & Record<string, unknown>>(
    `SELECT status, lease_owner AS owner, created_at::text AS created, lease_expires_at::text AS expires,
            lease_expires_at > clock_timestamp() AS "isLive"
       FROM idempotency_records WHERE account_id = $1`,
    [principal],
  );
  return row;
}

async function expireLease(principal: string): Promise<void> {
  await db.sql(
    `UPDATE idempotency_records SET lease_expires_at = clock_timestamp() - interval '1 ms' WHERE account_id = $1`,
    [principal],
  );
}

const coinsOf = async (principal: string) => (await playerOf(db, principal)).coins;

test('a request whose owner died after its claim is 409 until the lease passes, and then runs once (C10)', async () => {
  const request = await newRequest();
  const dying = gated('dead');
  const proxy = await startFaultProxy(db.apiUrl);
  onTestFinished(() => proxy.close());
  void recordHandler(dying.work, 30_000, proxy.url)(httpEvent(request), lambdaContext(6000));
  await dying.isInside;
  await proxy.refuse(); // And it is never heard of again.
  const handler = recordHandler(taking('second'));
  const busy = await send(handler, request);
  expect([busy.status, busy.code, busy.headers['retry-after']]).toEqual([409, 'ABORTED', '2']);
  await expireLease(request.principal);
  const answers = await Promise.all([send(handler, request), send(handler, request)]);
  expect(answers.map(({ status }) => status).toSorted()).toContain(201);
  expect(await coinsOf(request.principal)).toBe(999);
  expect((await send(handler, request)).text).toBe('second');
});

test('a missing lease means locked, and never abandoned (C03)', async () => {
  const request = await newRequest();
  const owner = gated('owner');
  const answering = send(recordHandler(owner.work), request);
  await owner.isInside;
  await db.sql('UPDATE idempotency_records SET lease_expires_at = NULL WHERE account_id = $1', [
    request.principal,
  ]);
  const busy = await send(recordHandler(taking('thief')), request);
  expect([busy.code, busy.headers['retry-after']]).toEqual(['ABORTED', '1']);
  owner.open();
  expect((await answering).text).toBe('owner');
  expect(await coinsOf(request.principal)).toBe(999);
});

test('one of two thieves at once wins, and the other is told that the key is taken', async () => {
  const request = await newRequest();
  const dead = await openSession(db.adminUrl);
  const first = gated('dead');
  void send(recordHandler(first.work), request);
  await first.isInside;
  await expireLease(request.principal);
  await dead.query('BEGIN');
  await dead.query('SELECT FROM idempotency_records WHERE account_id = $1 FOR UPDATE', [
    request.principal,
  ]);
  const thief = gated('thief');
  const thieves = [1, 2].map(() => send(recordHandler(thief.work), request));
  await seenBlocked(db, 2);
  await dead.query('COMMIT');
  await thief.isInside;
  const loser = await Promise.race(thieves);
  expect(loser.code).toBe('ABORTED');
  thief.open();
  const answers = await Promise.all(thieves);
  expect(answers.map(({ code, status }) => code ?? status).toSorted()).toEqual([201, 'ABORTED']);
  expect(await coinsOf(request.principal)).toBe(999);
  first.open();
});

test.each([
  ['succeeds', undefined],
  ['throws', new Error('late')],
])('an owner that was overtaken and %s late changes nothing (C29)', async (_how, error) => {
  const request = await newRequest();
  const owner = gated('owner');
  const work: Work = async (tx, principal) => {
    const response = await owner.work(tx, principal);
    if (error) throw error;
    return response;
  };
  const late = send(recordHandler(work), request);
  await owner.isInside;
  await expireLease(request.principal);
  expect((await send(recordHandler(taking('thief')), request)).text).toBe('thief');
  const stolen = await rowOf(request.principal);
  owner.open();
  const answer = await late;
  if (error) expect(answer.code).toBe('INTERNAL');
  else expect([answer.text, answer.headers['idempotency-replayed']]).toEqual(['thief', 'true']);
  expect(await rowOf(request.principal)).toEqual(stolen);
  expect(await coinsOf(request.principal)).toBe(999);
  expect((await send(recordHandler(taking('third')), request)).text).toBe('thief');
});

test('an overtaken owner that meets a thief still running is 409, and only the thief takes effect', async () => {
  const request = await newRequest();
  const owner = gated('owner');
  const late = send(recordHandler(owner.work), request);
  await owner.isInside;
  await expireLease(request.principal);
  const thief = gated('thief');
  const stealing = send(recordHandler(thief.work), request);
  await thief.isInside;
  owner.open();
  expect((await late).code).toBe('ABORTED');
  thief.open();
  expect((await stealing).text).toBe('thief');
  expect(await coinsOf(request.principal)).toBe(999);
});

test('a long mutation renews its lease, and keeps it (C11)', async () => {
  const request = await newRequest();
  const owner = gated('owner');
  const renewed = gated('renewed');
  const work: Work = async (tx, principal) => {
    await owner.work(tx, principal);
    await tx.renewLease();
    return renewed.work(tx, principal);
  };
  const running = send(recordHandler(work), request);
  await owner.isInside;
  await expireLease(request.principal);
  const expired = await rowOf(request.principal);
  owner.open();
  await renewed.isInside;
  const live = await rowOf(request.principal);
  expect([expired?.isLive, live?.isLive]).toEqual([false, true]);
  expect([live?.owner, live?.created]).toEqual([expired?.owner, expired?.created]);
  expect((await send(recordHandler(taking('thief')), request)).code).toBe('ABORTED');
  renewed.open();
  expect((await running).text).toBe('renewed');
});

test('a renewal after a take-over stops the work, and the thief is the one that counts', async () => {
  const request = await newRequest();
  const owner = gated('owner');
  let isStopped = true;
  const work: Work = async (tx, principal) => {
    const response = await owner.work(tx, principal);
    await tx.renewLease();
    isStopped = false;
    return response;
  };
  const running = send(recordHandler(work), request);
  await owner.isInside;
  await expireLease(request.principal);
  await send(recordHandler(taking('thief')), request);
  owner.open();
  expect((await running).text).toBe('thief');
  expect([isStopped, await coinsOf(request.principal)]).toEqual([true, 999]);
});

test('another request under the key never steals, however old the lease', async () => {
  const request = await newRequest();
  const owner = gated('owner');
  void send(recordHandler(owner.work), request);
  await owner.isInside;
  await expireLease(request.principal);
  const other = await send(recordHandler(taking('other')), { ...request, body: { n: 2 } });
  expect([other.status, other.code]).toEqual([422, 'KEY_REUSED']);
  owner.open();
});

test('an abandoned claim of another fingerprint version is stolen, and a live one is not (core 20)', async () => {
  const request = await newRequest();
  const owner = gated('owner');
  const late = send(recordHandler(owner.work), request);
  await owner.isInside;
  await db.sql(`UPDATE idempotency_records SET fingerprint = '0:older' WHERE account_id = $1`, [
    request.principal,
  ]);
  const live = await send(recordHandler(taking('thief')), request);
  expect([live.code, live.headers['retry-after']]).toEqual(['ABORTED', '2']);
  await expireLease(request.principal);
  expect((await send(recordHandler(taking('thief')), request)).text).toBe('thief');
  owner.open();
  expect((await late).text).toBe('thief');
  const replay = await send(recordHandler(taking('third')), request);
  expect([replay.text, await coinsOf(request.principal)]).toEqual(['thief', 999]);
  // What it had completed under another version stays closed.
  await db.sql(`UPDATE idempotency_records SET fingerprint = '0:older' WHERE account_id = $1`, [
    request.principal,
  ]);
  expect((await send(recordHandler(taking('fourth')), request)).code).toBe('ALREADY_EXISTS');
});

test('a replay takes no lock, and answers while the row is locked', async () => {
  const request = await newRequest();
  const handler = recordHandler(taking('first'));
  await send(handler, request);
  const locker = await openSession(db.adminUrl);
  await locker.query('BEGIN');
  await locker.query('SELECT FROM idempotency_records WHERE account_id = $1 FOR UPDATE', [
    request.principal,
  ]);
  expect((await send(handler, request)).text).toBe('first');
});

test('a record past its retention and not yet purged still answers', async () => {
  const request = await newRequest();
  const handler = recordHandler(taking('first'));
  await send(handler, request);
  await db.sql(
    `UPDATE idempotency_records SET completed_at = now() - interval '3 days', created_at = now() - interval '3 days' WHERE account_id = $1`,
    [request.principal],
  );
  const again = await send(handler, request);
  expect([again.text, again.headers['idempotency-replayed']]).toEqual(['first', 'true']);
  expect(Date.parse(again.headers['idempotency-expires'] as string)).toBeLessThan(Date.now());
  await db.sql('DELETE FROM idempotency_records WHERE account_id = $1', [request.principal]);
  expect((await send(handler, request)).headers['idempotency-replayed']).toBeUndefined();
  expect(await coinsOf(request.principal)).toBe(998);
});

test('a process clock that is minutes off decides nothing about a lease (C61)', async () => {
  const realNow = Date.now.bind(Date);
  for (const skewMs of [180_000, -180_000]) {
    const request = await newRequest();
    const owner = gated('owner');
    const answering = send(recordHandler(owner.work), request);
    await owner.isInside;
    const clock = vi.spyOn(Date, 'now').mockImplementation(() => realNow() + skewMs);
    try {
      expect((await send(recordHandler(taking('thief')), request)).code).toBe('ABORTED');
    } finally {
      clock.mockRestore();
    }
    owner.open();
    expect((await answering).text).toBe('owner');
  }
});

test('a transaction that is tried again as a whole keeps its token, and never meets itself', async () => {
  const request = await newRequest();
  const proxy = await startFaultProxy(db.apiUrl);
  onTestFinished(() => proxy.close());
  const lost = proxy.dropBefore('UPDATE players');
  const handler = recordHandler(taking('first'), 30_000, proxy.url);
  const answer = await send(handler, request);
  await lost;
  expect([answer.status, answer.text]).toEqual([201, 'first']);
  expect(await coinsOf(request.principal)).toBe(999);
});

test('a lost answer to COMMIT is looked up by the owner in the record (C65)', async () => {
  const request = await newRequest();
  const proxy = await startFaultProxy(db.apiUrl);
  onTestFinished(() => proxy.close());
  const handler = recordHandler(taking('first'), 30_000, proxy.url);
  const lost = proxy.dropAfter('COMMIT\0');
  const answer = await send(handler, request);
  await lost;
  expect([answer.status, answer.text]).toEqual([201, 'first']);
  const again = await send(handler, request);
  expect(again.headers['idempotency-expires']).toBe(answer.headers['idempotency-expires']);
  expect([again.text, await coinsOf(request.principal)]).toEqual(['first', 999]);
});

test('a body of any characters or bytes is repeated as it was', async () => {
  for (const [body, isBase64Encoded] of [
    ['a\0b\ud800c\u2028"\\', false],
    [Buffer.from([0, 255, 128, 10]).toString('base64'), true],
    ['x'.repeat(200_000), false],
  ] as const) {
    const request = await newRequest();
    const handler = recordHandler(async () => ({ statusCode: 200, body, isBase64Encoded }));
    await send(handler, request);
    const replay = await handler(httpEvent(request), lambdaContext());
    expect([replay.body === body, replay.isBase64Encoded]).toEqual([true, isBase64Encoded]);
  }
});

test('a purchase is charged once, with a receipt of its own that only its owner can read', async () => {
  const request = { ...(await newRequest({ sku: 'shield', quantity: 2 })) };
  const service = testService(db);
  const create = service.recordMutation(createPurchase);
  const get = service.query(getPurchase);
  const first = await send(create, request);
  expect(first.status).toBe(201);
  expect(first.json).toMatchObject({ sku: 'shield', quantity: 2, coins: 160 });
  expect(first.headers['location']).toBe(`/purchases/${first.json['id']}`);
  const again = await send(create, request);
  expect([again.text, again.headers['location']]).toEqual([first.text, first.headers['location']]);
  expect(await coinsOf(request.principal)).toBe(840);

  const path = first.headers['location'] as string;
  const read = (principal: string, id: unknown = first.json['id']) =>
    send(get, { method: 'GET', path, params: { id: String(id) }, principal });
  expect((await read(request.principal)).json).toEqual(first.json);
  expect((await read('somebody else')).code).toBe('NOT_FOUND');
  expect((await read(request.principal, newKey())).code).toBe('NOT_FOUND');

  const poor = await send(create, {
    ...request,
    key: newKey(),
    body: { sku: 'sword', quantity: 9 },
  });
  expect([poor.status, poor.code]).toEqual([402, 'INSUFFICIENT_COINS']);
  const unknown = await send(create, {
    ...request,
    key: newKey(),
    body: { sku: 'x', quantity: 1 },
  });
  expect([unknown.status, unknown.code]).toEqual([404, 'NOT_FOUND']);
  const sold = await db.sql('SELECT FROM purchases WHERE user_id = $1', [request.principal]);
  expect(sold).toHaveLength(1);
});

test.each(['', '%', 'nonsense', '\0', 'a\0b', '\ud800', '..', '{}', undefined])(
  'the receipt %j is one that nobody has: it is 404 without an ERROR line (C130)',
  async (id) => {
    const { principal } = await newRequest();
    const lines = captureOutput();
    const get = testService(db).query(getPurchase);
    for (const eventOf of [httpEvent, restEvent]) {
      const params = id === undefined ? {} : { id };
      const event = eventOf({ method: 'GET', path: '/purchases/%', params, principal });
      const answer = answerOf(await get(event, lambdaContext()));
      expect([answer.status, answer.code]).toEqual([404, 'NOT_FOUND']);
    }
    expect(lines.map(({ level }) => level)).toEqual(['INFO', 'INFO']);
  },
);
