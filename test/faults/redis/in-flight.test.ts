/** Two requests with one key at the same time, and whose entry it is that stands in Redis. */
import middy, { type MiddlewareObj } from '@middy/core';
import type { Context } from 'aws-lambda';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type HttpEvent, type HttpResponse, Problem } from '../../../shared/index.ts';
import { idempotency, type OnceContext, problemResponses } from '../../../shared/lambda/index.ts';
import { markerStore } from '../../../shared/postgres/index.ts';
import type { Tx } from '../../../shared/postgres/transaction.ts';
import { createRedis, redisClaimCache } from '../../../shared/redis/index.ts';
import { ANSWER_MARGIN_MS, working } from '../../support/patience.ts';
import { TEST_NAMESPACE } from '../../support/redis.ts';
import { answerOf, httpEvent, send } from '../../support/requests.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';
import {
  effectsOn,
  handlerEndingWith,
  holdPlayer,
  kindOf,
  markersFor,
  newRequest,
  PATIENT,
  type Spender,
  type SpendRequest,
  seenAtMarker,
  spender,
  useServers,
  warmSpender,
} from './servers.ts';

const servers = useServers(PATIENT);
let s: Spender;
let request: SpendRequest;
beforeEach(async () => {
  s = spender(servers);
  request = await newRequest(servers);
});

const otherBody = () => ({ ...request, body: { amount: 11 } });

/** Spends, and then throws. */
const failing = () =>
  handlerEndingWith(s.service, async () => {
    throw new Problem('NOT_FOUND', 'Thrown by the test.');
  });

/** Makes the one entry that stands there expire, as it does when its owner takes too long. */
async function expireEntry(): Promise<void> {
  const { key } = await servers.redis.entry();
  await servers.redis.raw.pexpire(key, 1);
  await eventually(async () => (await servers.redis.raw.exists(key)) === 0, 'expired');
}

/** As if the owner of the entry that stands there had so long to work, from now on. */
async function setOwnersDeadline(workingMs: number): Promise<void> {
  const { key, json } = await servers.redis.entry();
  const entry = JSON.stringify({ ...json, deadlineMs: Date.now() + workingMs });
  await servers.redis.raw.set(key, entry, 'PX', 60_000);
}

test('an entry is released by its acquirer alone (C01)', async () => {
  const letGo = await holdPlayer(servers, request);
  const a = send(s.spend, request);
  await seenBlocked(servers.db);
  const pending = await servers.redis.entry();
  for (const _ of ['B', 'C']) {
    const busy = await send(s.spend, request);
    expect([kindOf(busy), busy.json['retryable']]).toEqual(['409 ABORTED', true]);
    expect((await servers.redis.entry()).value).toBe(pending.value);
  }
  await letGo();
  const fresh = await a;
  expect(kindOf(fresh)).toBe('200 fresh');
  expect(kindOf(await send(s.spend, otherBody()))).toBe('422 KEY_REUSED');
  const replay = await send(s.spend, request);
  expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
  expect(await effectsOn(servers, request)).toBe(1);
  expect(await markersFor(servers, request)).toEqual([request.key]);
});

test('another payload while the first is in flight is a mismatch before it is busy (C15)', async () => {
  const letGo = await holdPlayer(servers, request);
  const a = send(s.spend, request);
  await seenBlocked(servers.db);
  const reused = await send(s.spend, otherBody());
  expect([kindOf(reused), reused.headers['retry-after']]).toEqual(['422 KEY_REUSED', undefined]);
  expect(kindOf(await send(s.spend, request))).toBe('409 ABORTED');
  await letGo();
  expect(kindOf(await a)).toBe('200 fresh');
  expect(await effectsOn(servers, request)).toBe(1);
});

describe('the Retry-After while another request is in flight', () => {
  test.each([
    { workingMs: 20_000, seconds: '2' },
    { workingMs: 900, seconds: '1' },
  ])('it is $seconds s where the owner has $workingMs ms left', async (owner) => {
    const letGo = await holdPlayer(servers, request);
    const a = send(s.spend, request);
    await seenBlocked(servers.db);
    await setOwnersDeadline(owner.workingMs);
    const busy = await send(s.spend, request);
    expect([kindOf(busy), busy.headers['retry-after']]).toEqual(['409 ABORTED', owner.seconds]);
    await letGo();
    expect(kindOf(await a)).toBe('200 fresh');
  });

  test('it is 1 s where the owner is past its deadline and its entry still stands', async () => {
    const letGo = await holdPlayer(servers, request);
    const a = send(s.spend, request, working(1000));
    await seenBlocked(servers.db);
    const { json, value, key } = await servers.redis.entry();
    expect(kindOf(await a)).toBe('409 CONTENTION');
    await letGo();
    // As a crashed owner leaves it.
    await servers.redis.raw.set(key, value, 'PXAT', Number(json?.['deadlineMs']) + 1000);
    await eventually(async () => Date.now() > Number(json?.['deadlineMs']), 'past the deadline');
    const busy = await send(s.spend, request);
    expect([kindOf(busy), busy.headers['retry-after']]).toEqual(['409 ABORTED', '1']);
    await eventually(async () => kindOf(await send(s.spend, request)) === '200 fresh', 'expired');
    expect(await effectsOn(servers, request)).toBe(1);
  });
});

describe('the owner A outlives its pending entry and B claims (C34)', () => {
  test('the third request C replays when A commits', async () => {
    const letGo = await holdPlayer(servers, request);
    const a = send(s.spend, request);
    await seenBlocked(servers.db);
    await expireEntry();
    const b = send(s.spend, request);
    await seenAtMarker(servers);
    expect((await servers.redis.entry()).json).toMatchObject({ state: 'pending' });
    expect(kindOf(await send(s.spend, request))).toBe('409 ABORTED');
    await letGo();
    const fresh = await a;
    expect(kindOf(fresh)).toBe('200 fresh');
    expect(kindOf(await b)).toBe('409 ALREADY_EXISTS');
    // B's release came after A's publish, or before: either way A's answer stands.
    const c = await send(s.spend, request);
    expect([kindOf(c), c.text]).toEqual(['200 replayed', fresh.text]);
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test('the entry of B survives when A fails and releases, and C replays what B committed', async () => {
    const letGo = await holdPlayer(servers, request);
    const a = send(failing(), request);
    await seenBlocked(servers.db);
    await expireEntry();
    // B is caught between its claim of L1 and its transaction, so that A ends first.
    const held = servers.postgresProxy.holdAt('claim_marker');
    const b = send(s.spend, request);
    await held;
    const entryOfB = await servers.redis.entry();
    await letGo();
    expect(kindOf(await a)).toBe('404 NOT_FOUND');
    expect((await servers.redis.entry()).value).toBe(entryOfB.value);
    expect(kindOf(await send(s.spend, request))).toBe('409 ABORTED');
    await servers.postgresProxy.pass();
    const ran = await b;
    expect(kindOf(ran)).toBe('200 fresh');
    const c = await send(s.spend, request);
    expect([kindOf(c), c.text]).toEqual(['200 replayed', ran.text]);
    expect(await effectsOn(servers, request)).toBe(1);
  });
});

test('a duplicate waits for the marker when FLUSHALL took the entry of the owner (C40)', async () => {
  const letGo = await holdPlayer(servers, request);
  const a = send(s.spend, request);
  const [owner] = await seenBlocked(servers.db);
  await servers.redis.raw.flushall();
  const b = send(s.spend, request);
  expect((await seenAtMarker(servers)).blockers).toEqual([owner?.pid]);
  await letGo();
  expect(kindOf(await a)).toBe('200 fresh');
  const refused = await b;
  expect(kindOf(refused)).toBe('409 ALREADY_EXISTS');
  expect(refused.headers['retry-after']).toBeUndefined();
  expect(await effectsOn(servers, request)).toBe(1);
});

test('a claim that expired before its release delays no answer (C46)', async () => {
  s = await warmSpender(servers);
  const letGo = await holdPlayer(servers, request);
  const a = send(failing(), request);
  await seenBlocked(servers.db);
  await expireEntry();
  await letGo();
  // Its release found another's entry or none: no command waited for its time-out.
  expect(kindOf(await a)).toBe('404 NOT_FOUND');
  expect(s.failures).not.toHaveBeenCalled();
  expect(await servers.redis.entries()).toEqual([]);
});

test('a process that was told "pending" replays later, since it remembers nothing (C32)', async () => {
  const other = spender(servers);
  const letGo = await holdPlayer(servers, request);
  const a = send(s.spend, request);
  await seenBlocked(servers.db);
  for (const { spend } of [s, other])
    expect(kindOf(await send(spend, request))).toBe('409 ABORTED');
  await letGo();
  const fresh = await a;
  for (const { spend } of [s, other]) {
    const replay = await send(spend, request);
    expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
  }
  await servers.redis.raw.flushall();
  for (const { spend } of [s, other]) {
    expect(kindOf(await send(spend, request))).toBe('409 ALREADY_EXISTS');
  }
  expect(await effectsOn(servers, request)).toBe(1);
});

describe('a request is cut off between COMMIT and its publish (C27)', () => {
  test('the publish is made all the same when the deadline passes', async () => {
    s = await warmSpender(servers);
    const committed = servers.postgresProxy.holdAnswer('COMMIT\0');
    const deadlineMs = Date.now() + 1000;
    const a = send(s.spend, request, working(1000));
    await committed;
    await eventually(async () => Date.now() > deadlineMs, 'past the deadline');
    await servers.postgresProxy.pass();
    const fresh = await a;
    expect(kindOf(fresh)).toBe('200 fresh');
    const replay = await send(s.spend, request);
    expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test('a middleware that answers early and aborts waits for once all the same (C83)', async () => {
    const handler = impatient();
    const committed = servers.postgresProxy.holdAnswer('COMMIT\0');
    const earlyMs = Date.now() + 300;
    const answered = handler(httpEvent(request), working(1000));
    await committed;
    await eventually(async () => Date.now() > earlyMs, 'past the early answer');
    expect(kindOf(await send(s.spend, request))).toBe('409 ABORTED');
    await servers.postgresProxy.pass();
    expect(kindOf(answerOf(await answered))).toBe('200 fresh');
    const replay = await send(s.spend, request);
    expect([kindOf(replay), replay.json['coins']]).toEqual(['200 replayed', 990]);
    expect(await effectsOn(servers, request)).toBe(1);
  });
});

/** The library's parts under a middy that is not ours: it answers after 300 ms and lets the rest run on. */
function impatient() {
  const { service } = s;
  const { settings, database } = service;
  const redis = createRedis({
    url: servers.redisProxy.url,
    commandTimeoutMs: 5000,
    onError: () => {},
  });
  onTestFinished(() => redis.disconnect());
  const cache = redisClaimCache({
    redis,
    namespace: TEST_NAMESPACE,
    connectBudgetMs: 20_000,
    coolDownMs: 1000,
    onFailure: () => {},
  });
  const store = markerStore({ database, ...settings.markers });
  return middy<HttpEvent, HttpResponse, Error, OnceContext<Tx>>({
    timeoutEarlyInMillis: ANSWER_MARGIN_MS + 700,
    timeoutEarlyResponse: () => ({ statusCode: 504, body: 'early' }),
  })
    .use(problemResponses({}) as Step)
    .use(
      idempotency<Tx>({
        cache,
        store,
        keyMode: 'required',
        storedBodyBytesMax: settings.requests.storedBodyBytesMax,
        answerMarginMs: settings.requests.answerMarginMs,
        requestTimeoutMs: 28_000,
        report: () => {},
      }),
    )
    .handler((_event, { once, principal }) =>
      once(async (tx) => {
        const { rows } = await tx.query<{ coins: string }>(
          `UPDATE players SET coins = coins - 10, data_version = data_version + 1
            WHERE user_id = $1 RETURNING coins`,
          [principal],
        );
        return { statusCode: 200, body: JSON.stringify({ coins: Number(rows[0]?.coins) }) };
      }),
    ) as unknown as (event: HttpEvent, context: Context) => Promise<HttpResponse>;
}

type Step = MiddlewareObj<HttpEvent, HttpResponse, Error, OnceContext<Tx>>;
