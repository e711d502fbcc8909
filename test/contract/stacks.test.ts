/** The stacks that people have: middy's own middlewares around ours, in every order that can work. */
import middy, { type MiddlewareObj } from '@middy/core';
import httpCors from '@middy/http-cors';
import httpErrorHandler from '@middy/http-error-handler';
import httpJsonBodyParser from '@middy/http-json-body-parser';
import validator from '@middy/validator';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { INSUFFICIENT_COINS } from '../../functions/problems.ts';
import { type HttpEvent, type HttpResponse, NO_CACHE, Problem } from '../../shared/index.ts';
import {
  idempotency,
  type OnceContext,
  problemResponses,
  type Report,
} from '../../shared/lambda/index.ts';
import { markerStore, type Tx } from '../../shared/postgres/index.ts';
import type { Handler } from '../../shared/service/index.ts';
import { markersOf, playerOf } from '../support/database.ts';
import { httpEvent, newKey, type RequestOptions, restEvent } from '../support/requests.ts';
import { type Fixture, openFixture, sendEvent } from './support.ts';

// biome-ignore lint/suspicious/noExplicitAny: other people's steps fit any stack.
type Step = MiddlewareObj<any, any, any, any>;

let fixture: Fixture;
beforeAll(async () => {
  fixture = await openFixture();
});
afterAll(() => fixture.close());

const ORIGIN = 'https://shop.example';

/** Of an amount above 100 it says that it is no body. */
function isValid(event: { body?: { amount?: unknown } }): boolean {
  return Number(event.body?.amount) <= 100;
}

function protection(report: (report: Report) => void = () => {}): Step {
  const { settings, database } = fixture.service;
  return idempotency<Tx>({
    store: markerStore({ database, ...settings.markers }),
    cache: NO_CACHE,
    keyMode: 'required',
    storedBodyBytesMax: 100_000,
    answerMarginMs: 1000,
    requestTimeoutMs: 10_000,
    stateUrl: '/players/me',
    report,
  });
}

const STEPS = {
  cors: () => httpCors({ origin: ORIGIN }) as Step,
  errorHandler: () => httpErrorHandler({ logger: false }) as Step,
  // Without options, as the README writes it.
  problems: () => problemResponses() as Step,
  idempotency: () => protection(),
  parser: () => httpJsonBodyParser() as Step,
  validator: () => validator({ eventSchema: isValid as never }) as Step,
};

type Name = keyof typeof STEPS;

/** Takes `amount` coins; of 13 it throws, and of 14 it refuses. */
function lambda(names: readonly Name[]): Handler {
  const stack = middy<HttpEvent, HttpResponse, Error, OnceContext<Tx>>({ timeoutEarlyInMillis: 0 });
  for (const name of names) stack.use(STEPS[name]());
  return stack.handler((event, { once, principal }) => {
    const { amount } = event.body as unknown as { amount: number };
    return once(async (tx) => {
      await tx.query(
        'UPDATE players SET coins = coins - $2, data_version = data_version + 1 WHERE user_id = $1',
        [principal, amount],
      );
      if (amount === 13) throw new Error('boom');
      if (amount === 14) throw new Problem(INSUFFICIENT_COINS, 'Not enough.');
      return { statusCode: 201, headers: { etag: '"2"' }, body: '{}' };
    });
  }) as unknown as Handler;
}

/** Every order of `names` in which those of `fixed` follow each other as they stand there. */
function orders(names: readonly Name[], fixed: readonly Name[]): Name[][] {
  if (names.length === 0) return [[]];
  return names.flatMap((name) => {
    const at = fixed.indexOf(name);
    const isTooEarly = at > 0 && names.includes(fixed[at - 1] as Name);
    if (isTooEarly) return [];
    const rest = names.filter((other) => other !== name);
    return orders(rest, fixed).map((order) => [name, ...order]);
  });
}

const ALL = Object.keys(STEPS) as Name[];
const WORKING = orders(ALL, ['problems', 'idempotency', 'parser', 'validator']);

test('the four middlewares stand one after the other in 30 orders', () => {
  expect(WORKING).toHaveLength(30);
  expect(new Set(WORKING.map(String)).size).toBe(30);
});

describe.each([
  { payload: '2.0', eventOf: httpEvent },
  { payload: '1.0', eventOf: restEvent },
])('an order that works, payload $payload (C125, library S4)', ({ eventOf }) => {
  test.each(WORKING.map((order) => [order.join(' → '), order] as const))(
    'the stack %s answers as the contract says',
    async (_, order) => {
      const handler = lambda(order);
      const principal = await fixture.newPlayer();
      const good: RequestOptions = { principal, key: newKey(), body: { amount: 1 } };
      const send = async (changed: RequestOptions = {}) => {
        const event = eventOf({ ...good, ...changed, headers: { Origin: ORIGIN } });
        const { status, code, headers, json } = await sendEvent(handler, event);
        expect([status, headers['access-control-allow-origin']]).toEqual([status, ORIGIN]);
        if (status >= 400) expect(json).toMatchObject({ status, code, title: /./ });
        return [status, code ?? headers['etag']];
      };
      expect(await send()).toEqual([201, '"2"']);
      expect(await send()).toEqual([409, 'ALREADY_EXISTS']);
      expect(await send({ key: null })).toEqual([400, 'KEY_REQUIRED']);
      expect(await send({ principal: undefined })).toEqual([401, 'UNAUTHENTICATED']);
      const key = newKey();
      expect(await send({ key, rawBody: '{"amount": 1' })).toEqual([400, 'BODY_INVALID']);
      expect(await send({ key, body: { amount: 101 } })).toEqual([400, 'BODY_INVALID']);
      expect(await send({ key, body: { amount: 13 } })).toEqual([500, 'INTERNAL']);
      expect(await send({ key, body: { amount: 14 } })).toEqual([402, 'INSUFFICIENT_COINS']);
      expect(await playerOf(fixture.db, principal)).toEqual({ coins: 999, version: 2 });
      expect(await markersOf(fixture.db, principal)).toEqual([good.key]);
    },
  );
});

describe('an order that cannot work says so at the first request', () => {
  const heard = async (names: readonly Name[]) => {
    const errors = vi.spyOn(console, 'error').mockImplementation(() => {});
    try {
      const principal = await fixture.newPlayer();
      const event = httpEvent({ principal, key: newKey(), body: { amount: 1 } });
      const answer = await sendEvent(lambda(names), event);
      expect(await markersOf(fixture.db, principal)).toEqual([]);
      return [answer.status, answer.code, JSON.stringify(errors.mock.calls)];
    } finally {
      errors.mockRestore();
    }
  };

  test('a parser before idempotency() is reported (core 13, library S5)', async () => {
    for (const names of [
      ['problems', 'parser', 'idempotency'],
      ['parser', 'problems', 'idempotency', 'validator'],
    ] as const) {
      expect(await heard(names)).toEqual([
        500,
        'INTERNAL',
        expect.stringContaining('idempotency() must come before the body parser'),
      ]);
    }
  });

  test('problemResponses() after idempotency() is reported', async () => {
    expect(await heard(['idempotency', 'problems', 'parser'])).toEqual([
      500,
      'INTERNAL',
      expect.stringContaining('problemResponses() must come before idempotency()'),
    ]);
  });

  test('idempotency() that stands twice is reported', async () => {
    expect(await heard(['problems', 'idempotency', 'idempotency', 'parser'])).toEqual([
      500,
      'INTERNAL',
      expect.stringContaining('idempotency() stands twice'),
    ]);
  });
});

describe('a stack without problemResponses()', () => {
  test('http-error-handler gives a Problem its own status and Retry-After', async () => {
    const event = httpEvent({ key: newKey(), body: { amount: 1 } });
    const answer = await sendEvent(lambda(['errorHandler', 'idempotency', 'parser']), event);
    expect([answer.status, answer.text]).toEqual([401, expect.stringMatching(/^UNAUTHENTICATED/)]);
  });

  test('a refusal of once is its own problem, and has the headers of cors', async () => {
    const principal = await fixture.newPlayer();
    const event = httpEvent({ principal, key: newKey(), body: { amount: 1 } });
    const handler = lambda(['errorHandler', 'cors', 'idempotency', 'parser']);
    expect((await sendEvent(handler, event)).status).toBe(201);
    const again = await sendEvent(handler, event);
    expect([again.status, again.code]).toEqual([409, 'ALREADY_EXISTS']);
    expect(again.headers['access-control-allow-origin']).toBe(ORIGIN);
  });
});

describe('problemResponses() without a reporter (library S4)', () => {
  test('an error that somebody must look at goes to console.error, and a refusal does not', async () => {
    const errors = vi.spyOn(console, 'error').mockImplementation(() => {});
    const failing = (error: unknown) =>
      middy<HttpEvent, HttpResponse>()
        .use(problemResponses())
        .handler(async () => {
          throw error;
        }) as unknown as Handler;
    const event = httpEvent({});
    const foreign = Object.assign(new Error('No'), { statusCode: 403 });
    expect((await sendEvent(failing(foreign), event)).status).toBe(403);
    expect((await sendEvent(failing(new Problem('NOT_FOUND', 'No')), event)).status).toBe(404);
    expect(errors).not.toHaveBeenCalled();
    const wrong = Object.assign(new Error('boom'), { detail: 'hunter2' });
    expect((await sendEvent(failing(wrong), event)).status).toBe(500);
    expect(JSON.stringify(errors.mock.calls)).toMatch(/boom/);
    expect(JSON.stringify(errors.mock.calls)).not.toMatch(/hunter2/);
    errors.mockRestore();
  });

  test('an error that JSON cannot carry is answered all the same', async () => {
    const handler = middy<HttpEvent, HttpResponse>()
      .use(problemResponses({ report: () => {} }))
      .handler(async () => {
        throw new Problem('NOT_FOUND', 'No', { members: { big: 1n } });
      }) as unknown as Handler;
    expect(await sendEvent(handler, httpEvent({}))).toMatchObject({
      status: 500,
      code: 'INTERNAL',
    });
  });
});

test('an event of a queue throws, also where http-error-handler stands (library S10)', async () => {
  const event = { Records: [{ eventSource: 'aws:sqs', body: '{}' }] };
  for (const names of [
    ['problems', 'idempotency'],
    ['errorHandler', 'problems', 'idempotency'],
    ['problems', 'errorHandler', 'cors', 'idempotency'],
    ['errorHandler', 'idempotency'],
    ['idempotency', 'errorHandler'],
  ] as const) {
    await expect(sendEvent(lambda(names), event)).rejects.toThrow(/no HTTP request/);
  }
});

test('a hook that makes a success of an error hides nothing (C79)', async () => {
  const hiding: Step = {
    onError: (request) => {
      request.response = { statusCode: 200, body: 'fine' };
    },
  };
  for (const steps of [
    [problemResponses({ report: () => {} }), hiding],
    [problemResponses({ report: () => {} }), protection(), hiding],
  ]) {
    const handler = middy()
      .use(steps as Step[])
      .handler(async () => {
        throw new Error('boom');
      }) as unknown as Handler;
    const event = httpEvent({ principal: newKey(), key: newKey(), body: {} });
    expect(await sendEvent(handler, event)).toMatchObject({ status: 500, code: 'INTERNAL' });
  }
});
