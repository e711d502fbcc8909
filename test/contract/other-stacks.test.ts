/** The middleware among middlewares of somebody else's. */
import middy, { type MiddlewareObj } from '@middy/core';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import type { HttpEvent, HttpResponse } from '../../shared/index.ts';
import { idempotency, type OnceContext, problemResponses } from '../../shared/lambda/index.ts';
import { markerStore, type Tx } from '../../shared/postgres/index.ts';
import { createRedis, redisClaimCache } from '../../shared/redis/index.ts';
import type { Handler } from '../../shared/service/index.ts';
import { markersOf, playerOf } from '../support/database.ts';
import { TEST_NAMESPACE } from '../support/redis.ts';
import { httpEvent, newKey } from '../support/requests.ts';
import { expectNoTrace, expectRefusal, type Fixture, openFixture, sendEvent } from './support.ts';

let fixture: Fixture;
let redis: ReturnType<typeof createRedis>;
beforeAll(async () => {
  fixture = await openFixture();
  redis = createRedis({
    url: inject('redisUrl'),
    commandTimeoutMs: 5000,
    onError: () => {},
  });
});
afterAll(async () => {
  redis.disconnect();
  await fixture.close();
});

type Step = MiddlewareObj<HttpEvent, HttpResponse, Error, OnceContext<Tx>>;

/** Takes a coin and answers 204; `early` stands between the problems and the protection. */
function takeOne(early: Step, report: () => void = () => {}): Handler {
  const { settings, database } = fixture.service;
  const protection = idempotency<Tx>({
    storedBodyBytesMax: settings.requests.storedBodyBytesMax,
    answerMarginMs: settings.requests.answerMarginMs,
    requestTimeoutMs: 28_000,
    keyMode: 'required',
    store: markerStore({ database, ...settings.markers }),
    cache: redisClaimCache({
      redis,
      namespace: TEST_NAMESPACE,
      connectBudgetMs: 20_000,
      coolDownMs: 1000,
      onFailure: () => {},
    }),
    report,
  });
  return middy<HttpEvent, HttpResponse, Error, OnceContext<Tx>>()
    .use(problemResponses({}) as Step)
    .use(early)
    .use(protection)
    .handler((_event, { once, principal }) =>
      once(async (tx) => {
        await tx.query(
          'UPDATE players SET coins = coins - 1, data_version = data_version + 1 WHERE user_id = $1',
          [principal],
        );
        return { statusCode: 204 };
      }),
    ) as unknown as Handler;
}

test('a 401 that an earlier middleware throws goes out, and nothing is claimed (C09)', async () => {
  const principal = await fixture.newPlayer();
  let isAllowed = false;
  const handler = takeOne({
    before: () => {
      if (!isAllowed) throw Object.assign(new Error('Token expired'), { statusCode: 401 });
    },
  });
  const event = httpEvent({ principal, key: 'K1', body: {} });
  const refused = await sendEvent(handler, event);
  expectRefusal(refused, 401, 'UNAUTHENTICATED');
  expect(refused.json['detail']).toBe('Token expired');
  await expectNoTrace(fixture, [principal]);

  isAllowed = true;
  expect((await sendEvent(handler, event)).status).toBe(204);
  expect(await playerOf(fixture.db, principal)).toEqual({ coins: 999, version: 2 });
});

test('a DELETE with an empty body and a content type of JSON is 204, and 204 again (C25, C75)', async () => {
  const principal = await fixture.newPlayer();
  const handler = takeOne({ before: () => {} });
  const event = httpEvent({ method: 'DELETE', path: '/players/me/x', principal, key: newKey() });
  expect(event.headers['content-type']).toBe('application/json');
  expect(event.body).toBeUndefined();

  const first = await sendEvent(handler, event);
  expect([first.status, first.text]).toEqual([204, '']);
  const again = await sendEvent(handler, event);
  expect([again.status, again.text, again.headers['idempotency-replayed']]).toEqual([
    204,
    '',
    'true',
  ]);
  expect(await playerOf(fixture.db, principal)).toEqual({ coins: 999, version: 2 });
  expect(await markersOf(fixture.db, principal)).toHaveLength(1);
});

test('a report that throws leaves the committed answer, and the cache gets its response (C08)', async () => {
  const principal = await fixture.newPlayer();
  const report = () => {
    throw new Error('no space left on the metrics');
  };
  const handler = takeOne({ before: () => {} }, report);
  const event = httpEvent({ principal, key: newKey(), body: {} });
  expect((await sendEvent(handler, event)).status).toBe(204);
  const again = await sendEvent(handler, event);
  expect([again.status, again.headers['idempotency-replayed']]).toEqual([204, 'true']);
  expect(await playerOf(fixture.db, principal)).toEqual({ coins: 999, version: 2 });
});
