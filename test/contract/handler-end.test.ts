/**
 * However a handler ends: the `once` that it called is the answer, and an ERROR line says
 * what it did. On a real Postgres and without Redis, so that a used key is ALREADY_EXISTS.
 */
import middy, { type MiddlewareObj } from '@middy/core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  type Cache,
  type HttpEvent,
  type HttpResponse,
  NO_CACHE,
  Problem,
  type Store,
} from '../../shared/index.ts';
import type { HttpWork } from '../../shared/lambda/index.ts';
import {
  idempotency,
  type OnceContext,
  problemResponses,
  type Report,
} from '../../shared/lambda/index.ts';
import { createDatabase, markerStore, type Tx } from '../../shared/postgres/index.ts';
import type { Handler } from '../../shared/service/index.ts';
import { markersOf, playerOf } from '../support/database.ts';
import { answerOf, httpEvent, lambdaContext, newKey } from '../support/requests.ts';
import { type Fixture, openFixture, sendEvent } from './support.ts';

type Step = MiddlewareObj<HttpEvent, HttpResponse, Error, OnceContext<Tx>>;
type Run = (context: OnceContext<Tx>) => unknown;

let fixture: Fixture;
let reports: Report[] = [];
const unhandled: unknown[] = [];
const onUnhandled = (error: unknown) => unhandled.push(error);

beforeAll(async () => {
  fixture = await openFixture();
  process.on('unhandledRejection', onUnhandled);
});
beforeEach(() => {
  reports = [];
  unhandled.length = 0;
});
afterEach(async () => {
  await new Promise(setImmediate);
  expect(unhandled, 'rejections that nobody handled').toEqual([]);
});
afterAll(async () => {
  process.off('unhandledRejection', onUnhandled);
  await fixture.close();
});

interface Extras {
  readonly inner?: Step;
  readonly outer?: Step;
  readonly store?: Store<Tx>;
  readonly cache?: Cache;
  /** Told beside `reports`. */
  readonly report?: (told: Report) => void;
}

function lambda(run: Run, { inner, outer, store, cache, ...extras }: Extras = {}): Handler {
  const { settings, database } = fixture.service;
  const report = (told: Report) => {
    reports.push(told);
    return extras.report?.(told);
  };
  const stack = middy<HttpEvent, HttpResponse, Error, OnceContext<Tx>>({
    timeoutEarlyInMillis: 0,
  }).use(problemResponses({ report }) as Step);
  if (outer) stack.use(outer);
  stack.use(
    idempotency<Tx>({
      store: store ?? markerStore({ database, ...settings.markers }),
      cache: cache ?? NO_CACHE,
      keyMode: 'required',
      storedBodyBytesMax: 100_000,
      answerMarginMs: 1000,
      requestTimeoutMs: 10_000,
      stateUrl: '/players/me',
      report,
    }),
  );
  if (inner) stack.use(inner);
  return stack.handler((_event, context) => run(context) as never) as unknown as Handler;
}

const DONE = { statusCode: 201, headers: { etag: '"2"' }, body: '{"done":true}' };

/** Takes one coin, and then what `then` says. */
const takeOne =
  (principal: string, then: () => Promise<HttpResponse | Problem> | HttpResponse = () => DONE) =>
  async (tx: Tx) => {
    await tx.query(
      'UPDATE players SET coins = coins - 1, data_version = data_version + 1 WHERE user_id = $1',
      [principal],
    );
    return then();
  };

/** What `once` reports of itself has these; the rest says what the handler did. */
const OUTCOMES_OF_ONCE = ['committed', 'failed', 'not_found'];

const faults = () =>
  reports
    .filter(({ layer, outcome }) => layer === 'handler' && !OUTCOMES_OF_ONCE.includes(outcome))
    .map(({ outcome }) => outcome);

async function newRequest() {
  const principal = await fixture.newPlayer();
  return { principal, event: httpEvent({ principal, key: newKey(), body: {} }) };
}

async function expectCommitted(principal: string, isCommitted = true): Promise<void> {
  expect(await playerOf(fixture.db, principal)).toMatchObject({ coins: isCommitted ? 999 : 1000 });
  expect(await markersOf(fixture.db, principal)).toHaveLength(isCommitted ? 1 : 0);
}

function expectDone(answer: Awaited<ReturnType<typeof sendEvent>>): void {
  expect([answer.status, answer.text, answer.headers['etag']]).toEqual([201, DONE.body, '"2"']);
  expect(answer.headers).toHaveProperty('idempotency-expires');
}

describe('a handler that ends while once is running is answered by once (C84, C137, core 2, core 4, core 16, library S3)', () => {
  /** Runs `run` so that the handler ends while the work stands between its query and COMMIT. */
  async function endingEarly(
    run: (context: OnceContext<Tx>, work: HttpWork<Tx>, isInside: Promise<void>) => unknown,
    then: () => HttpResponse = () => DONE,
  ) {
    const inside = Promise.withResolvers<void>();
    const gate = Promise.withResolvers<void>();
    const { principal, event } = await newRequest();
    const handler = lambda((context) => {
      const work = takeOne(principal, async () => {
        inside.resolve();
        await gate.promise;
        return then();
      });
      return run(context, work, inside.promise);
    });
    const asked = sendEvent(handler, event);
    await inside.promise;
    gate.resolve();
    return { principal, event, handler, answer: await asked };
  }

  test('a handler that rejects beside it does not change what once committed', async () => {
    const { principal, answer, handler, event } = await endingEarly(({ once }, work, isInside) =>
      Promise.all([
        once(work),
        isInside.then(() => {
          throw new Error('the audit failed');
        }),
      ]),
    );
    expectDone(answer);
    await expectCommitted(principal);
    expect(faults()).toEqual(['not_awaited']);
    expect((await sendEvent(handler, event)).code).toBe('ALREADY_EXISTS');
  });

  test('a handler that answers 202 and does not await it gets the answer of once', async () => {
    const { principal, answer } = await endingEarly(({ once }, work) => {
      void once(work);
      return Promise.resolve({ statusCode: 202 });
    });
    expectDone(answer);
    await expectCommitted(principal);
    expect(faults()).toEqual(['not_awaited']);
  });

  test('a handler that is not even asynchronous gets the answer of once', async () => {
    const { principal, answer } = await endingEarly(({ once }, work) => {
      void once(work);
      return { statusCode: 202 };
    });
    expectDone(answer);
    await expectCommitted(principal);
  });

  test('a handler that does not await it, and whose work then fails, never sends its 202', async () => {
    for (const run of [
      () => ({ statusCode: 202 }),
      () => {
        throw new Error('beside');
      },
    ]) {
      const { principal, answer } = await endingEarly(
        ({ once }, work) => {
          void once(work);
          return run();
        },
        () => {
          throw new Problem('NOT_FOUND', 'No such order.');
        },
      );
      expect([answer.status, answer.code]).toEqual([404, 'NOT_FOUND']);
      await expectCommitted(principal, false);
    }
    expect(faults()).toEqual(['not_awaited', 'not_awaited']);
  });

  test('a handler that forgets to return the response sends it all the same, whatever the status (core 16)', async () => {
    for (const statusCode of [200, 201]) {
      const { principal, event } = await newRequest();
      const handler = lambda(async ({ once }) => {
        await once(takeOne(principal, () => ({ ...DONE, statusCode })));
      });
      const answer = await sendEvent(handler, event);
      expect([answer.status, answer.text]).toEqual([statusCode, DONE.body]);
      await expectCommitted(principal);
    }
    expect(faults()).toEqual(['response_changed', 'response_changed']);
  });

  test.each<[string, (response: HttpResponse) => unknown]>([
    ['another status', (response) => ({ ...response, statusCode: 200 })],
    ['another status, written into it', (response) => Object.assign(response, { statusCode: 200 })],
    ['another body', (response) => ({ ...response, body: '{"done":"perhaps"}' })],
    ['no body', ({ statusCode, headers }) => ({ statusCode, headers })],
    ['bytes', (response) => ({ ...response, isBase64Encoded: true })],
    ['other headers', (response) => ({ ...response, headers: { etag: '"1"' } })],
    ['a 500', () => ({ statusCode: 500, body: 'sorry' })],
    ['text', () => 'done'],
    ['null', () => null],
  ])('a handler that answers with %s after once does not change the answer', async (_, change) => {
    const { principal, event } = await newRequest();
    const handler = lambda(async ({ once }) => change(await once(takeOne(principal))));
    expectDone(await sendEvent(handler, event));
    await expectCommitted(principal);
    expect(faults()).toEqual(['response_changed']);
  });

  test('a handler that returns a copy of the response, or adds a header, is not reported', async () => {
    for (const headers of [{}, { 'x-trace': '1' }]) {
      const { principal, event } = await newRequest();
      const handler = lambda(async ({ once }) => {
        const response = await once(takeOne(principal));
        return { ...response, headers: { ...response.headers, ...headers } };
      });
      const answer = await sendEvent(handler, event);
      expectDone(answer);
      expect(answer.headers).toMatchObject(headers);
    }
    expect(faults()).toEqual([]);
  });

  test('a hook inside idempotency() that adds headers is not reported', async () => {
    const cors = { 'Access-Control-Allow-Origin': '*' };
    const into: Step = {
      after: ({ response }) => {
        Object.assign(response?.headers ?? {}, cors);
      },
    };
    const instead: Step = {
      after: (request) => {
        const { response } = request as { response: HttpResponse };
        request.response = { ...response, headers: { ...response.headers, ...cors } };
      },
    };
    for (const inner of [into, instead]) {
      const { principal, event } = await newRequest();
      const handler = lambda(({ once }) => once(takeOne(principal)), { inner });
      const answer = await sendEvent(handler, event);
      expectDone(answer);
      expect(answer.headers['access-control-allow-origin']).toBe('*');
    }
    expect(faults()).toEqual([]);

    // And they stay where the handler's answer does not.
    const { principal, event } = await newRequest();
    const handler = lambda(
      async ({ once }) => {
        await once(takeOne(principal));
        return { statusCode: 200, headers: {} };
      },
      { inner: instead },
    );
    const answer = await sendEvent(handler, event);
    expectDone(answer);
    expect(answer.headers['access-control-allow-origin']).toBe('*');
  });
});

describe('what once refused stays refused (C137, core 4)', () => {
  test('a handler that swallows what the work threw, and answers with success, is 500', async () => {
    const { principal, event } = await newRequest();
    const handler = lambda(async ({ once }) => {
      const work = takeOne(principal, () => {
        throw new Error('boom');
      });
      return once(work).catch(() => ({ statusCode: 200 }));
    });
    const answer = await sendEvent(handler, event);
    expect([answer.status, answer.code]).toEqual([500, 'INTERNAL']);
    await expectCommitted(principal, false);
    expect(faults()).toEqual(['error_swallowed']);
  });

  test.each<[string, () => unknown, string]>([
    ['a success', () => ({ statusCode: 200, body: 'done' }), 'error_swallowed'],
    ['a redirection', () => ({ statusCode: 303 }), 'error_swallowed'],
    ['nothing', () => undefined, 'error_swallowed'],
    ['a refusal of its own', () => ({ statusCode: 400 }), 'error_changed'],
    [
      'another error',
      () => {
        throw new Error('another');
      },
      'error_changed',
    ],
    [
      'another problem',
      () => {
        throw new Problem('NOT_FOUND', 'No.');
      },
      'error_changed',
    ],
  ])('a handler that makes %s of a used key changes no answer', async (_, instead, fault) => {
    const { principal, event } = await newRequest();
    await sendEvent(
      lambda(({ once }) => once(takeOne(principal))),
      event,
    );
    const handler = lambda(({ once }) => once(takeOne(principal)).catch(instead));
    const answer = await sendEvent(handler, event);
    expect([answer.status, answer.code]).toEqual([409, 'ALREADY_EXISTS']);
    expect(answer.json['state']).toBe('/players/me');
    await expectCommitted(principal);
    expect(faults()).toEqual([fault]);
  });

  test.each<[string, () => unknown]>([
    ['a 500', () => ({ statusCode: 500 })],
    [
      'an error',
      () => {
        throw new Error('another');
      },
    ],
  ])('an answer that says "send it again" never becomes %s', async (_, instead) => {
    const nowhere = createDatabase({
      connectionString: 'postgres://nobody@127.0.0.1:1/nowhere',
      max: 1,
      pipeline: true,
      connectTimeoutMs: 1000,
      onIdleError: () => {},
    });
    const { principal, event } = await newRequest();
    const store = markerStore({ database: nowhere, retentionMs: 3_600_000 });
    const handler = lambda(({ once }) => once(takeOne(principal)).catch(instead), { store });
    const answer = await sendEvent(handler, event);
    expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
      503,
      'UNAVAILABLE',
      '1',
    ]);
    await nowhere.pool.end();
  });

  test('a handler may make a refusal of its own of what the work threw', async () => {
    class OutOfStock extends Error {}
    const turns: (() => unknown)[] = [
      () => ({ statusCode: 409, body: 'out of stock' }),
      () => {
        throw Object.assign(new Error('out of stock'), { statusCode: 409 });
      },
    ];
    for (const turn of turns) {
      const { principal, event } = await newRequest();
      const handler = lambda(async ({ once }) => {
        try {
          return await once(
            takeOne(principal, () => {
              throw new OutOfStock();
            }),
          );
        } catch (error) {
          if (error instanceof OutOfStock) return turn();
          throw error;
        }
      });
      const answer = await sendEvent(handler, event);
      expect(answer.status).toBe(409);
      expect(answer.text).toContain('out of stock');
      await expectCommitted(principal, false);
    }
    expect(faults()).toEqual([]);
  });

  test('a hook that makes a success of a refusal hides nothing', async () => {
    const { principal, event } = await newRequest();
    await sendEvent(
      lambda(({ once }) => once(takeOne(principal))),
      event,
    );
    const hiding: Step = {
      onError: (request) => {
        request.response = { statusCode: 200, body: 'fine' };
      },
    };
    for (const extras of [{ inner: hiding }, { outer: hiding }]) {
      const handler = lambda(({ once }) => once(takeOne(principal)), extras);
      expect((await sendEvent(handler, event)).code).toBe('ALREADY_EXISTS');
    }
  });
});

describe('once runs its work once (C137, library S3)', () => {
  test.each<[string, (context: OnceContext<Tx>, work: HttpWork<Tx>) => unknown]>([
    ['twice in parallel', ({ once }, work) => Promise.all([once(work), once(work)])],
    [
      'twice in parallel, and one is listened to',
      async ({ once }, work) => {
        const [first] = await Promise.allSettled([once(work), once(work)]);
        return first.status === 'fulfilled' ? first.value : undefined;
      },
    ],
    [
      'twice, one after the other',
      async ({ once }, work) => {
        await once(work);
        return once(work);
      },
    ],
    [
      'twice, and the second one is forgotten',
      ({ once }, work) => {
        const first = once(work);
        void once(work);
        return first;
      },
    ],
  ])('once that is called %s has one effect and one answer, the first one’s', async (_, run) => {
    const { principal, event } = await newRequest();
    const answer = await sendEvent(
      lambda((context) => run(context, takeOne(principal))),
      event,
    );
    expectDone(answer);
    await expectCommitted(principal);
    expect(faults()).toEqual(['called_twice']);
  });

  test('a call after the handler was answered does nothing', async () => {
    const { principal, event } = await newRequest();
    const answered = Promise.withResolvers<void>();
    let late: Promise<unknown> | undefined;
    const handler = lambda(({ once }) => {
      late = answered.promise.then(() => once(takeOne(principal)));
      late.catch(() => {});
      return { statusCode: 404 };
    });
    expect((await sendEvent(handler, event)).status).toBe(404);
    answered.resolve();
    await expect(late).rejects.toThrow(/after the handler had ended/);
    await expectCommitted(principal, false);
    expect(faults()).toEqual(['called_late']);
  });

  test('a success without once becomes a failure that does not deny an effect', async () => {
    const { event } = await newRequest();
    const answer = await sendEvent(
      lambda(async () => DONE),
      event,
    );
    expect([answer.status, answer.code]).toEqual([500, 'INTERNAL']);
    expect(answer.json['detail']).toMatch(/may have taken effect/);
    expect(faults()).toEqual(['unprotected']);
  });
});

test('an ERROR says what the handler did, and why it ended', async () => {
  const { principal, event } = await newRequest();
  const handler = lambda(async ({ once }) => {
    await once(takeOne(principal));
    throw new Error('the audit failed');
  });
  expectDone(await sendEvent(handler, event));
  const told = reports.find(({ outcome }) => outcome === 'threw_after_once');
  expect(told?.error).toBeInstanceOf(Error);
  expect(told).toMatchObject({ error: { cause: { message: 'the audit failed' } } });
});

describe.each(['inner', 'outer'] as const)(
  'an %s middleware that throws once the work is committed (core 15)',
  (place) => {
    test.each<[string, Partial<Step>]>([
      ['and its onError returns an answer of its own', { onError: () => SORRY as never }],
      [
        'and its onError sets an answer of its own',
        {
          onError: (request) => {
            request.response = SORRY;
          },
        },
      ],
    ])('the committed response is the answer when the middleware throws %s', async (_, hooks) => {
      const { event, principal } = await newRequest();
      const step = {
        after: () => {
          throw new Error('after the commit');
        },
        ...hooks,
      } as Step;
      const handler = lambda(({ once }) => once(takeOne(principal)), { [place]: step });
      const answer = await sendEvent(handler, event);
      expectDone(answer);
      expect(answer.headers['x-sorry']).toBe('yes');
      await expectCommitted(principal);
    });
  },
);

const SORRY: HttpResponse = { statusCode: 500, headers: { 'x-sorry': 'yes' }, body: 'sorry' };

describe('the answer is never the object that the handler holds (core 3)', () => {
  type Spoil = (response: HttpResponse) => unknown;
  test.each<[string, Spoil]>([
    ['a member that JSON cannot say', (response) => ({ ...response, trace: 5n })],
    [
      'a cycle',
      (response) => {
        const spoiled = { ...response } as Record<string, unknown>;
        spoiled['self'] = spoiled;
        return spoiled;
      },
    ],
    ['a header that is a BigInt', (response) => withHeader(response, 5n)],
    ['a header with a line break', (response) => withHeader(response, 'a\nb')],
    ['no headers any more', ({ headers: _, ...response }) => response],
    ['another ETag', (response) => ({ ...response, headers: { ...response.headers, etag: 'x' } })],
  ])('a handler that returns %s leaves the committed answer as it was', async (_, spoil) => {
    const { event, principal } = await newRequest();
    const handler = lambda(async ({ once }) => spoil(await once(takeOne(principal))));
    const answer = await handler(event, lambdaContext());
    expect(JSON.parse(JSON.stringify(answer))).toMatchObject({ statusCode: 201, body: DONE.body });
    expect(answer.headers).toMatchObject({ etag: '"2"' });
    expect(answer.headers).toHaveProperty('idempotency-expires');
    expect(answer.headers).not.toHaveProperty('x-spoiled');
    await expectCommitted(principal);
  });

  test('headers and cookies that a hook inside adds are kept', async () => {
    const { event, principal } = await newRequest();
    const inner: Step = {
      after: (request) => {
        const response = request.response as HttpResponse;
        response.headers = { ...response.headers, 'set-cookie': 'a=b', 'x-frame-options': 'DENY' };
        response.cookies = ['c=d'];
      },
    };
    const handler = lambda(({ once }) => once(takeOne(principal)), { inner });
    const answer = await handler(event, lambdaContext());
    expect(answer.headers).toMatchObject({ 'set-cookie': 'a=b', 'x-frame-options': 'DENY' });
    expect(answer.cookies).toEqual(['c=d']);
    expect(faults()).toEqual([]);
  });
});

function withHeader(response: HttpResponse, value: unknown) {
  return { ...response, headers: { ...response.headers, 'x-spoiled': value } };
}

test('a cache that never answers costs no more than the time of the request (core 18)', async () => {
  const { event, principal } = await newRequest();
  const never = () => new Promise<never>(() => {});
  const handler = lambda(({ once }) => once(takeOne(principal)), {
    cache: {
      claim: async () => ({ lookup: { kind: 'claimed' }, publish: never, release: never }),
    },
  });
  expectDone(answerOf(await handler(event, lambdaContext(3000))));
  await expectCommitted(principal);
});

test('a reporter that is asynchronous and rejects is counted, and ends no process', async () => {
  const { event, principal } = await newRequest();
  let isFirst = true;
  const handler = lambda(({ once }) => once(takeOne(principal)), {
    report: (async () => {
      if (!isFirst) return;
      isFirst = false;
      throw new Error('no space left on the metrics');
    }) as never,
  });
  expectDone(await sendEvent(handler, event));
  await new Promise(setImmediate);
  expect(reports.map(({ outcome }) => outcome)).toContain('report_failed');
});
