/** Whatever is wrong with a request: the right refusal, and no claim left behind. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { spendCoins } from '../../functions/players/spend-coins.ts';
import { createService } from '../../shared/service/index.ts';
import { markersOf, playerOf, seedPlayer } from '../support/database.ts';
import { ENTRIES, TEST_NAMESPACE } from '../support/redis.ts';
import { httpEvent, newKey, type RequestOptions, restEvent } from '../support/requests.ts';
import { ALL, BODY_BYTES_MAX } from './faults.ts';
import {
  expectNoTrace,
  expectRefusal,
  type Fixture,
  openFixture,
  sendEvent,
  withHeaders,
} from './support.ts';

let fixture: Fixture;
beforeAll(async () => {
  fixture = await openFixture();
});
afterAll(() => fixture.close());

const PAYLOADS = [
  { payload: '2.0', eventOf: httpEvent },
  { payload: '1.0', eventOf: restEvent },
];

const MUTATIONS = [
  {
    route: 'spend-coins',
    handlerOf: (fixture: Fixture) => fixture.spend,
    path: '/players/me/coins/spend',
    good: (_to: string) => ({ amount: 10 }) as Record<string, unknown>,
  },
  {
    route: 'transfer-coins',
    handlerOf: (fixture: Fixture) => fixture.transfer,
    path: '/transfers',
    good: (to: string) => ({ to, amount: 10 }) as Record<string, unknown>,
  },
];

describe.each(PAYLOADS)('a request of payload $payload', ({ eventOf }) => {
  describe.each(MUTATIONS)('the route $route', ({ handlerOf, path, good }) => {
    describe.each(ALL)('%i %s answers what is wrong with %s', (status, code, _what, faults) => {
      test.each(faults)('%s is wrong', async (_, { options, change = (event) => event, spoil }) => {
        const [principal, to] = [await fixture.newPlayer(), await fixture.newPlayer()];
        const rightBody = JSON.stringify(good(to));
        const event = eventOf({
          path,
          principal,
          key: newKey(),
          rawBody: spoil ? spoil(rightBody) : rightBody,
          ...options,
        });
        expectRefusal(await sendEvent(handlerOf(fixture), change(event)), status, code);
        await expectNoTrace(fixture, [principal, to]);
      });
    });

    test('a body is 413 PAYLOAD_TOO_LARGE from the first byte over the limit', async () => {
      const [principal, to] = [await fixture.newPlayer(), await fixture.newPlayer()];
      const right = JSON.stringify(good(to));
      // An é is two bytes: it is bytes that are counted.
      const long = (bytes: number) => {
        const reason = `,"x":"${'é'.repeat(1000)}"}`;
        return right.replace('}', reason).padEnd(bytes - 1000);
      };
      const send = (rawBody: string, isBase64Encoded = false) =>
        sendEvent(
          handlerOf(fixture),
          eventOf({ path, principal, key: newKey(), rawBody, isBase64Encoded }),
        );

      expectRefusal(await send(long(BODY_BYTES_MAX + 1)), 413, 'PAYLOAD_TOO_LARGE');
      expectRefusal(await send(long(BODY_BYTES_MAX)), 400, 'BODY_INVALID');
      const inBase64 = Buffer.from(long(BODY_BYTES_MAX + 1)).toString('base64');
      expectRefusal(await send(inBase64, true), 413, 'PAYLOAD_TOO_LARGE');
      expectRefusal(await send('x'.repeat(6_000_000)), 413, 'PAYLOAD_TOO_LARGE');
      await expectNoTrace(fixture, [principal, to]);
      // base64 is longer than what it carries, which is what counts.
      const atLimit = Buffer.from(right.padEnd(BODY_BYTES_MAX)).toString('base64');
      expect((await send(atLimit, true)).status).toBe(200);
    });

    test('a body that is too long and too deep is 413, since nobody has read it yet', async () => {
      const [principal, rawBody] = [await fixture.newPlayer(), '['.repeat(BODY_BYTES_MAX + 1)];
      const event = eventOf({ path, principal, key: newKey(), rawBody });
      expectRefusal(await sendEvent(handlerOf(fixture), event), 413, 'PAYLOAD_TOO_LARGE');
      await expectNoTrace(fixture, [principal]);
    });

    test.each([
      ['Content-Type', 'application/json; charset=utf-8'],
      ['CONTENT-TYPE', 'Application/JSON'],
      ['content-type', 'application/json ; charset=utf-8'],
      ['Content-type', 'application/vnd.api+json'],
    ])('the header %s: %s is accepted', async (name, value) => {
      const [principal, to] = [await fixture.newPlayer(), await fixture.newPlayer()];
      const request = { path, principal, key: newKey(), body: good(to) };
      const event = withHeaders(eventOf(request), { [name]: value });
      expect((await sendEvent(handlerOf(fixture), event)).status).toBe(200);
      expect(await playerOf(fixture.db, principal)).toEqual({ coins: 990, version: 2 });
    });

    test('a player who does not exist is 404 NOT_FOUND, and the key stays unused', async () => {
      const [principal, to] = [newKey(), await fixture.newPlayer()];
      const event = eventOf({ path, principal, key: 'K1', body: good(to) });
      expectRefusal(await sendEvent(handlerOf(fixture), event), 404, 'NOT_FOUND');
      expect(await markersOf(fixture.db, principal)).toEqual([]);
      expect(await fixture.entriesOf(principal)).toEqual([]);
      await expectNoTrace(fixture, [to]);

      await seedPlayer(fixture.db, principal);
      expect((await sendEvent(handlerOf(fixture), event)).status).toBe(200);
    });

    test('a key that met a 400 for a bad body works with the corrected body (C21)', async () => {
      const [principal, to] = [await fixture.newPlayer(), await fixture.newPlayer()];
      const request = { path, principal, key: newKey() };
      const bad = eventOf({ ...request, body: { ...good(to), amount: 0 } });
      expectRefusal(await sendEvent(handlerOf(fixture), bad), 400, 'BODY_INVALID');
      await expectNoTrace(fixture, [principal, to]);

      const right = await sendEvent(handlerOf(fixture), eventOf({ ...request, body: good(to) }));
      expect(right.status).toBe(200);
      expect(right.headers).not.toHaveProperty('idempotency-replayed');
      expect(await markersOf(fixture.db, principal)).toEqual([request.key]);
      expect(await playerOf(fixture.db, principal)).toEqual({ coins: 990, version: 2 });
    });

    test('the principal is judged before the key, and the key before the body', async () => {
      const wrong = { path, key: 'a b', rawBody: '{"bad' };
      expectRefusal(await sendEvent(handlerOf(fixture), eventOf(wrong)), 401, 'UNAUTHENTICATED');
      const known = { ...wrong, principal: newKey() };
      expectRefusal(await sendEvent(handlerOf(fixture), eventOf(known)), 400, 'KEY_MALFORMED');
    });

    test('the body is judged before the fingerprint', async () => {
      const [principal, to] = [await fixture.newPlayer(), await fixture.newPlayer()];
      const request = { path, principal, key: newKey() };
      expect(
        (await sendEvent(handlerOf(fixture), eventOf({ ...request, body: good(to) }))).status,
      ).toBe(200);
      const bad = eventOf({ ...request, body: { ...good(to), amount: 0 } });
      expectRefusal(await sendEvent(handlerOf(fixture), bad), 400, 'BODY_INVALID');
      expect(await playerOf(fixture.db, principal)).toEqual({ coins: 990, version: 2 });
    });
  });

  describe('text that no store could keep', () => {
    const UNSTORABLE: [string, string][] = [
      ['a NUL', '\\u0000'],
      ['a NUL among others', 'a\\u0000b'],
      ['a high surrogate alone', '\\ud800'],
      ['a low surrogate alone', '\\udc00'],
      ['surrogates the wrong way round', '\\udc00\\ud800'],
      ['an unescaped half of a pair', '\ud83d'],
      ['an unescaped NUL', '\0'],
      ['nothing', ''],
    ];

    test.each([...UNSTORABLE, ['201 characters', 'x'.repeat(201)]])(
      'a reason is refused when it is %s',
      async (_, text) => {
        const principal = await fixture.newPlayer();
        const rawBody = `{"amount":10,"reason":"${text}"}`;
        const event = eventOf({ principal, key: newKey(), rawBody });
        expectRefusal(await sendEvent(fixture.spend, event), 400, 'BODY_INVALID');
        await expectNoTrace(fixture, [principal]);
      },
    );

    test.each([...UNSTORABLE, ['256 characters', 'x'.repeat(256)]])(
      'a receiver is refused when it is %s',
      async (_, text) => {
        const principal = await fixture.newPlayer();
        const rawBody = `{"to":"${text}","amount":10}`;
        const event = eventOf({ path: '/transfers', principal, key: newKey(), rawBody });
        expectRefusal(await sendEvent(fixture.transfer, event), 400, 'BODY_INVALID');
        await expectNoTrace(fixture, [principal]);
      },
    );

    test.each(['null', '1', '[]', '{}', 'true'])('%s is refused in both texts', async (value) => {
      const principal = await fixture.newPlayer();
      const send = (handler: 'spend' | 'transfer', rawBody: string) =>
        sendEvent(fixture[handler], eventOf({ principal, key: newKey(), rawBody }));
      expectRefusal(await send('spend', `{"amount":10,"reason":${value}}`), 400, 'BODY_INVALID');
      expectRefusal(await send('transfer', `{"amount":10,"to":${value}}`), 400, 'BODY_INVALID');
      await expectNoTrace(fixture, [principal]);
    });

    test('a reason with bytes that are not UTF-8 is refused', async () => {
      const principal = await fixture.newPlayer();
      const raw = Buffer.concat([
        Buffer.from('{"amount":10,"reason":"'),
        Buffer.from([0xc3, 0x28]),
        Buffer.from('"}'),
      ]);
      const rawBody = raw.toString('base64');
      const event = eventOf({ principal, key: newKey(), rawBody, isBase64Encoded: true });
      expectRefusal(await sendEvent(fixture.spend, event), 400, 'BODY_INVALID');
      await expectNoTrace(fixture, [principal]);
    });

    test('unusual text that a store can keep is accepted', async () => {
      const principal = await fixture.newPlayer();
      for (const reason of [
        '😀',
        '\u0001\u001f\u007f',
        "'; DROP TABLE players; --",
        '\\',
        '{1,2}',
      ]) {
        const event = eventOf({ principal, key: newKey(), body: { amount: 10, reason } });
        expect((await sendEvent(fixture.spend, event)).status).toBe(200);
      }
      expect(await playerOf(fixture.db, principal)).toEqual({ coins: 950, version: 6 });
    });
  });

  describe('the route transfer-coins', () => {
    const send = async (principal: string, body: object) =>
      sendEvent(fixture.transfer, eventOf({ path: '/transfers', principal, key: newKey(), body }));

    test('a transfer to oneself is BODY_INVALID', async () => {
      const principal = await fixture.newPlayer();
      expectRefusal(await send(principal, { to: principal, amount: 10 }), 400, 'BODY_INVALID');
      await expectNoTrace(fixture, [principal]);
    });

    test('a transfer without a receiver is BODY_INVALID', async () => {
      const principal = await fixture.newPlayer();
      expectRefusal(await send(principal, { amount: 10 }), 400, 'BODY_INVALID');
      await expectNoTrace(fixture, [principal]);
    });

    test.each(['nobody', "x' OR '1'='1", '{a,b}', 'NULL', '%', '😀'])(
      'a transfer to %s, who does not exist, is NOT_FOUND',
      async (to) => {
        const principal = await fixture.newPlayer();
        expectRefusal(await send(principal, { to, amount: 10 }), 404, 'NOT_FOUND');
        await expectNoTrace(fixture, [principal]);
      },
    );

    test('a transfer that overfills a purse is BODY_INVALID, and one that fills it is done', async () => {
      const [principal, to] = [await fixture.newPlayer(), await fixture.newPlayer(2 ** 53 - 1 - 9)];
      expectRefusal(await send(principal, { to, amount: 10 }), 400, 'BODY_INVALID');
      await expectNoTrace(fixture, [principal]);
      await expectNoTrace(fixture, [to], 2 ** 53 - 1 - 9);
      expect((await send(principal, { to, amount: 9 })).status).toBe(200);
      expect(await playerOf(fixture.db, to)).toEqual({ coins: 2 ** 53 - 1, version: 2 });
    });
  });

  describe('the route spend-coins with an If-Match', () => {
    const send = async (principal: string, ifMatch: string) =>
      sendEvent(
        fixture.spend,
        eventOf({ principal, key: 'K1', body: { amount: 10 }, headers: { 'If-Match': ifMatch } }),
      );

    test.each(['', '1', '"1', "'1'", '*, "1"', '"1" "2"', 'w/"1"'])(
      'an If-Match of %j is PRECONDITION_MALFORMED',
      async (ifMatch) => {
        const principal = await fixture.newPlayer();
        expectRefusal(await send(principal, ifMatch), 400, 'PRECONDITION_MALFORMED');
        await expectNoTrace(fixture, [principal]);
      },
    );

    test.each(['"2"', 'W/"1"', '"01"', '"1 "', '"x"', '"NULL"', '"{1}"', '"a,b"', '"\\"'])(
      'an If-Match of %s is refused, and the key stays unused',
      async (ifMatch) => {
        const principal = await fixture.newPlayer();
        const isTag = !ifMatch.includes(' ');
        const [status, code] = isTag
          ? [412, 'VERSION_MISMATCH']
          : ([400, 'PRECONDITION_MALFORMED'] as const);
        expectRefusal(await send(principal, ifMatch), status as number, code as string);
        await expectNoTrace(fixture, [principal]);
        // The key is unused, so that it can be sent again with what was read anew.
        expect((await send(principal, '"1"')).status).toBe(200);
      },
    );

    test.each(['*', '"1"', '"7", "1"', 'W/"1", "1"'])('If-Match %s is right', async (ifMatch) => {
      const principal = await fixture.newPlayer();
      expect((await send(principal, ifMatch)).headers['etag']).toBe('"2"');
    });
  });
});

describe('two fields of one name, payload 1.0', () => {
  const send = async (principal: string, multiValueHeaders: object) => {
    const event = restEvent({ principal, body: { amount: 10 } });
    const type = { 'Content-Type': ['application/json'] };
    return sendEvent(fixture.spend, {
      ...event,
      multiValueHeaders: { ...type, ...multiValueHeaders },
    });
  };

  test('two different keys are KEY_MALFORMED', async () => {
    const principal = await fixture.newPlayer();
    for (const fields of [
      { 'Idempotency-Key': ['K1', 'K2'] },
      { 'Idempotency-Key': ['K1'], 'idempotency-key': ['K2'] },
    ]) {
      expectRefusal(await send(principal, fields), 400, 'KEY_MALFORMED');
    }
    await expectNoTrace(fixture, [principal]);
  });

  test('the same key twice, once quoted, is one key (C86)', async () => {
    const principal = await fixture.newPlayer();
    expect((await send(principal, { 'Idempotency-Key': ['K1', '"K1"'] })).status).toBe(200);
    expect(await markersOf(fixture.db, principal)).toEqual(['K1']);
  });

  test('a star among entity tags is PRECONDITION_MALFORMED', async () => {
    const principal = await fixture.newPlayer();
    const fields = { 'Idempotency-Key': ['K1'], 'If-Match': ['*', '"1"'] };
    expectRefusal(await send(principal, fields), 400, 'PRECONDITION_MALFORMED');
    await expectNoTrace(fixture, [principal]);
  });
});

describe('what is wrong with a request is answered before any store is asked (C71)', () => {
  const nowhere = createService({
    DATABASE_URL: 'postgres://nobody@127.0.0.1:1/nowhere',
    REDIS_URL: 'redis://127.0.0.1:1',
    BACKSTOP_NAMESPACE: TEST_NAMESPACE,
  });
  afterAll(() => nowhere.close());
  const request = { principal: newKey(), key: newKey(), body: { amount: 10 } };

  test.each<[number, string, RequestOptions]>([
    [401, 'UNAUTHENTICATED', { principal: undefined }],
    [400, 'KEY_REQUIRED', { key: null }],
    [400, 'KEY_MALFORMED', { key: 'k'.repeat(6400) }],
    [400, 'BODY_INVALID', { body: { amount: 0 } }],
    [400, 'PRECONDITION_MALFORMED', { headers: { 'if-match': '7' } }],
    [413, 'PAYLOAD_TOO_LARGE', { rawBody: ' '.repeat(BODY_BYTES_MAX + 1) }],
    [415, 'UNSUPPORTED_MEDIA_TYPE', { headers: { 'content-type': 'text/plain' } }],
  ])('%i %s is answered while no store can be reached', async (status, code, wrong) => {
    const event = httpEvent({ ...request, ...wrong });
    expectRefusal(await sendEvent(nowhere.mutation(spendCoins), event), status, code);
  });

  test('a right request is 503 UNAVAILABLE', async () => {
    const answer = await sendEvent(nowhere.mutation(spendCoins), httpEvent(request));
    expect([answer.status, answer.code]).toEqual([503, 'UNAVAILABLE']);
  });
});

test('an event that is no HTTP request throws, and is never answered (library S10)', async () => {
  for (const event of [{}, null, 'POST /', { Records: [] }, { source: 'aws.events' }]) {
    await expect(sendEvent(fixture.spend, event)).rejects.toThrow(/no HTTP request/);
  }
});

test('no delimiter makes one claim of two: t1 with a:b, t1:a with b (C87)', async () => {
  const base = newKey();
  const pairs = [
    [base, 'a:b'],
    [`${base}:a`, 'b'],
    [`${base}%3Aa`, 'b'],
    [base, 'a%3Ab'],
  ] as const;
  for (const [principal] of pairs.slice(0, 3)) await seedPlayer(fixture.db, principal);
  for (const [principal, key] of pairs) {
    const answer = await sendEvent(
      fixture.spend,
      httpEvent({ principal, key, body: { amount: 10 } }),
    );
    expect(answer.status).toBe(200);
    expect(answer.headers).not.toHaveProperty('idempotency-replayed');
  }
  expect(await fixture.redis.keys(`${ENTRIES}${base}*`)).toHaveLength(pairs.length);
  expect(await markersOf(fixture.db, base)).toEqual(['a%3Ab', 'a:b']);
});

test('the refusal of a body says which member is wrong, and how', async () => {
  const principal = await fixture.newPlayer();
  const refusal = async (body: object) =>
    (await sendEvent(fixture.spend, httpEvent({ principal, key: newKey(), body }))).json;
  expect(await refusal({ amount: 'ten', reason: '\0', note: 1 })).toMatchObject({
    detail: expect.stringContaining('amount: Invalid input: expected number, received string'),
    errors: [
      { path: 'amount', message: 'Invalid input: expected number, received string' },
      { path: 'reason', message: 'has characters that cannot be stored' },
      { path: '', message: 'Unrecognized key: "note"' },
    ],
  });
  expect(await refusal({ amount: 0 })).toMatchObject({
    errors: [{ path: 'amount', message: 'Too small: expected number to be >=1' }],
  });
});
