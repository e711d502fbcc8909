/**
 * The contract, as a function of the store: every store passes it with Redis,
 * without, and with Redis dying in the middle of each first request.
 */
import middy, { type MiddlewareObj } from '@middy/core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { INSUFFICIENT_COINS } from '../../functions/problems.ts';
import { type CacheMode, type HttpEvent, type HttpResponse, Problem } from '../../shared/index.ts';
import {
  idempotency,
  type KeyMode,
  type OnceContext,
  problemResponses,
  type Report,
} from '../../shared/lambda/index.ts';
import type { Handler } from '../../shared/service/index.ts';
import {
  type Answer,
  answerOf,
  httpEvent,
  lambdaContext,
  newKey,
  type RequestOptions,
} from '../support/requests.ts';
import type { OpenRig, RedisMode, Rig } from './rig.ts';

type Responder = () => Promise<HttpResponse | Problem> | HttpResponse | Problem;
type Context<Handle> = OnceContext<Handle>;
type HandlerOf<Handle> = (
  context: Context<Handle>,
  event: HttpEvent,
) => Promise<HttpResponse | undefined>;
type Middleware<Handle> = MiddlewareObj<HttpEvent, HttpResponse, Error, Context<Handle>>;

const STATE_URL = '/players/me';

const CREATED: HttpResponse = {
  statusCode: 201,
  headers: { 'content-type': 'application/json', Location: '/things/1', ETag: '"1"' },
  body: '{"b":1,  "a":[1.0, "ü"]}',
};

/** @param cacheMode With `parallel` every word of the contract stays as it is. */
export function conformanceSuite<Handle>(
  rig: Rig<Handle>,
  redis: RedisMode,
  cacheMode: CacheMode = 'first',
): void {
  describe(`${rig.name}, Redis ${redis}, fast path ${cacheMode}`, () => {
    let open: OpenRig<Handle>;
    let reports: Report[];
    /** Is a response still there for a retry? Only in Redis, or in the store as well? */
    const remembers = redis === 'on' || rig.traits.replaysWithoutRedis;

    beforeAll(async () => {
      open = await rig.open(redis);
    });
    afterAll(() => open.close());
    beforeEach(() => {
      reports = [];
    });
    afterEach(() => open.mendStore());

    interface Extras {
      readonly keyMode?: KeyMode;
      readonly outer?: Middleware<Handle>;
      readonly storedBodyBytesMax?: number;
    }

    /** A Lambda with the whole stack around `handler`. */
    function lambda(handler: HandlerOf<Handle>, extras: Extras = {}): Handler {
      const outermost = problemResponses({ report: (report) => reports.push(report) });
      const stack = middy<HttpEvent, HttpResponse, Error, Context<Handle>>({
        timeoutEarlyInMillis: 0,
      }).use(outermost as Middleware<Handle>);
      if (extras.outer) stack.use(extras.outer);
      return stack
        .use(
          idempotency<Handle>({
            store: open.store,
            cache: open.cache,
            cacheMode,
            stateUrl: STATE_URL,
            storedBodyBytesMax: extras.storedBodyBytesMax ?? 100_000,
            keyMode: extras.keyMode ?? 'required',
            answerMarginMs: 1000,
            requestTimeoutMs: 10_000,
            report: (report) => reports.push(report),
          }),
        )
        .handler((event, context) => handler(context, event) as never) as unknown as Handler;
    }

    /** The common case: one effect, then `respond`; the first time, Redis may die in between. */
    function doing(respond: Responder, extras: Extras = {}): Handler {
      return lambda(
        ({ once, principal }) =>
          once(
            open.work(principal, async () => {
              await open.midway();
              return respond();
            }),
          ),
        extras,
      );
    }

    async function call(
      handler: Handler,
      options: RequestOptions,
      remainingMs = 11_000,
    ): Promise<Answer> {
      return answerOf(await handler(httpEvent(options), lambdaContext(remainingMs)));
    }

    function request(body: unknown = { amount: 1 }) {
      return { principal: `p-${newKey()}`, key: newKey(), body };
    }

    function expectUsedUp(answer: Answer): void {
      expect([answer.status, answer.code]).toEqual([409, 'ALREADY_EXISTS']);
      expect(answer.headers['retry-after']).toBeUndefined();
      expect(answer.headers['link']).toBe(`<${STATE_URL}>; rel="related"`);
      expect(answer.json).toMatchObject({ retryable: false, state: STATE_URL });
    }

    /** What a retry hears of a request that has committed. */
    function expectRepeat(answer: Answer, first: Answer): void {
      if (!remembers) {
        expectUsedUp(answer);
        return;
      }
      expect(answer.status).toBe(first.status);
      expect(answer.text).toBe(first.text);
      expect(answer.headers['idempotency-replayed']).toBe('true');
      expect(answer.headers['idempotency-expires']).toBe(first.headers['idempotency-expires']);
    }

    const replays = ({ headers }: Answer) => Number('idempotency-replayed' in headers);

    function expectReused(answer: Answer): void {
      if (remembers) expect([answer.status, answer.code]).toEqual([422, 'KEY_REUSED']);
      else expectUsedUp(answer);
    }

    test.each([200, 201, 202, 204])('a %i is repeated as it was (C25)', async (statusCode) => {
      const handler = doing(() => ({ ...CREATED, statusCode }));
      const sent = request();
      const first = await call(handler, sent);
      expect(first.status).toBe(statusCode);
      expect(first.text).toBe(CREATED.body);
      expect(first.headers['idempotency-replayed']).toBeUndefined();
      expect(Date.parse(first.headers['idempotency-expires'] as string)).toBeGreaterThan(
        Date.now(),
      );
      expectRepeat(await call(handler, sent), first);
      expect(await open.effects(sent.principal)).toBe(1);
      expect(await open.claims(sent.principal)).toBe(1);
    });

    test('a replay has the headers of the answer, and none of the exchange (C24)', async () => {
      const headers = {
        ...CREATED.headers,
        'Set-Cookie': 'a=b',
        'X-Request-Id': '1',
        'Content-Length': '5',
      };
      const handler = doing(() => ({ ...CREATED, headers, cookies: ['c=d'] }));
      const sent = request();
      const first = await call(handler, sent);
      expect(first.headers).toMatchObject({ 'set-cookie': 'a=b', 'x-request-id': '1' });
      const again = await call(handler, { ...sent, headers: { 'Idempotency-Replayed': 'false' } });
      expectRepeat(again, first);
      expect(again.headers).not.toHaveProperty('set-cookie');
      expect(again.headers).not.toHaveProperty('x-request-id');
      expect(again.headers).not.toHaveProperty('content-length');
      if (remembers) expect(again.headers).toMatchObject({ location: '/things/1', etag: '"1"' });
    });

    test('another request under the same key never runs, and one of the same meaning is a repeat (C07, C13)', async () => {
      const handler = doing(() => CREATED);
      const sent = request({ a: 1, b: [1, 2] });
      const first = await call(handler, sent);
      expectReused(await call(handler, { ...sent, body: { a: 1, b: [2, 1] } }));
      expectReused(await call(handler, { ...sent, query: 'x=1' }));
      expectRepeat(await call(handler, { ...sent, rawBody: '{"b":[1,2],\n"a":1}' }), first);
      const base64 = Buffer.from(JSON.stringify(sent.body)).toString('base64');
      expectRepeat(await call(handler, { ...sent, rawBody: base64, isBase64Encoded: true }), first);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('a quoted key is the same key as the bare one (C86)', async () => {
      const handler = doing(() => CREATED);
      const sent = request();
      const first = await call(handler, sent);
      expectRepeat(await call(handler, { ...sent, key: `"${sent.key}"` }), first);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('a used key on another route never runs where it stands for all routes (C21)', async () => {
      const handler = doing(() => CREATED);
      const sent = request();
      await call(handler, sent);
      const other = await call(handler, { ...sent, path: '/transfers' });
      if (rig.traits.identity === 'key') expectReused(other);
      else expect(other.status).toBe(201);
      expect(await open.effects(sent.principal)).toBe(rig.traits.identity === 'key' ? 1 : 2);
    });

    test('two principals with the same key are two requests (C22)', async () => {
      const handler = doing(() => CREATED);
      const [one, two] = [request(), request()];
      expect((await call(handler, one)).status).toBe(201);
      const other = await call(handler, { ...two, key: one.key });
      expect([other.status, other.headers['idempotency-replayed']]).toEqual([201, undefined]);
      expect([await open.effects(one.principal), await open.effects(two.principal)]).toEqual([
        1, 1,
      ]);
    });

    test('a duplicate of a running request never takes effect, though its client gave up on it (C01, C15, C82)', async () => {
      const isInside = Promise.withResolvers<void>();
      const gate = Promise.withResolvers<void>();
      const handler = doing(async () => {
        isInside.resolve();
        await gate.promise;
        return CREATED;
      });
      const sent = request();
      const running = call(handler, sent);
      await isInside.promise;

      const inFlight = rig.traits.duplicateInFlight;
      if (inFlight === 'is refused' || (inFlight === 'waits' && redis === 'on')) {
        const mismatch = await call(handler, { ...sent, body: { amount: 2 } });
        expect([mismatch.status, mismatch.code]).toEqual([422, 'KEY_REUSED']);
        for (const busy of [await call(handler, sent), await call(handler, sent)]) {
          expect([busy.status, busy.code]).toEqual([409, 'ABORTED']);
          expect(busy.headers['retry-after']).toMatch(/^[12]$/);
        }
        gate.resolve();
      } else {
        const waiting = call(handler, sent);
        await open.seenWaiting();
        gate.resolve();
        const both = [await running, await waiting];
        // Whose commit comes first is open where both run; elsewhere it is the owner's.
        if (inFlight !== 'waits') both.sort((one, other) => replays(one) - replays(other));
        const [first, second] = both as [Answer, Answer];
        expectRepeat(second, first);
      }
      const first = await running;
      expect(first.status).toBe(201);
      expectRepeat(await call(handler, sent), first);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('50 requests at once with one key have one effect, and none fails (C16)', async () => {
      const handler = doing(() => CREATED);
      const sent = request();
      const answers = await Promise.all(Array.from({ length: 50 }, () => call(handler, sent)));
      const kinds = answers.map(({ code, status, headers }) =>
        headers['idempotency-replayed'] ? 'replayed' : (code ?? status),
      );
      expect(kinds.filter((kind) => kind === 201)).toHaveLength(1);
      expect(
        kinds.filter((kind) => !['replayed', 201, 'ABORTED', 'ALREADY_EXISTS'].includes(kind)),
      ).toEqual([]);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('work that has thrown is undone and not kept, so that the retry runs (C30, C68)', async () => {
      let calls = 0;
      const handler = doing(() => {
        calls++;
        if (calls === 1) throw new Error('boom');
        if (calls === 2) throw new Problem('NOT_FOUND', 'gone');
        return CREATED;
      });
      const sent = request();
      const broken = await call(handler, sent);
      expect([broken.status, broken.code]).toEqual([500, 'INTERNAL']);
      expect(broken.text).not.toContain('boom');
      expect([await open.effects(sent.principal), await open.claims(sent.principal)]).toEqual([
        0, 0,
      ]);
      expect((await call(handler, sent)).code).toBe('NOT_FOUND');
      expect([await open.effects(sent.principal), await open.claims(sent.principal)]).toEqual([
        0, 0,
      ]);
      expect((await call(handler, sent)).status).toBe(201);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('a returned refusal is kept and replayed, and its writes are undone', async () => {
      let calls = 0;
      const handler = doing(() => {
        calls++;
        return new Problem(INSUFFICIENT_COINS, `try ${calls}`);
      });
      const sent = request();
      const first = await call(handler, sent);
      expect([first.status, first.code]).toEqual([402, 'INSUFFICIENT_COINS']);
      expect([await open.effects(sent.principal), await open.claims(sent.principal)]).toEqual([
        0, 1,
      ]);
      expectRepeat(await call(handler, sent), first);
      expect(await open.effects(sent.principal)).toBe(0);
    });

    test('a returned 5xx goes out as it is, is undone and not kept', async () => {
      let calls = 0;
      const handler = doing(() => {
        calls++;
        return calls === 1 ? { statusCode: 502, body: 'upstream' } : CREATED;
      });
      const sent = request();
      const first = await call(handler, sent);
      expect([first.status, first.text]).toEqual([502, 'upstream']);
      expect([await open.effects(sent.principal), await open.claims(sent.principal)]).toEqual([
        0, 0,
      ]);
      expect((await call(handler, sent)).status).toBe(201);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('a response that cannot be kept fails loudly, and takes no effect (C80)', async () => {
      const handler = doing(() => ({ statusCode: 200, body: new ReadableStream() }) as never);
      const sent = request();
      expect((await call(handler, sent)).code).toBe('INTERNAL');
      expect([await open.effects(sent.principal), await open.claims(sent.principal)]).toEqual([
        0, 0,
      ]);
    });

    test('a body over the cap goes out whole, and leaves a tombstone', async () => {
      const handler = doing(() => ({ statusCode: 200, body: 'x'.repeat(2000) }), {
        storedBodyBytesMax: 1000,
      });
      const sent = request();
      const first = await call(handler, sent);
      expect([first.status, first.text.length]).toEqual([200, 2000]);
      expectUsedUp(await call(handler, sent));
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('a second call of once does nothing, and the first one is the answer', async () => {
      const handler = lambda(async ({ once, principal }) => {
        const work = open.work(principal, () => CREATED);
        await once(work);
        return once(work);
      });
      const sent = request();
      expect((await call(handler, sent)).status).toBe(201);
      expect(await open.effects(sent.principal)).toBe(1);
      expect(reports.map(({ outcome }) => outcome)).toContain('called_twice');
    });

    test('the response of once is the answer, whatever the handler returns instead', async () => {
      const handler = lambda(async ({ once, principal }) => {
        await once(open.work(principal, () => CREATED));
        return { statusCode: 200, body: 'something else' };
      });
      const answer = await call(handler, request());
      expect([answer.status, answer.text]).toEqual([201, CREATED.body]);
      expect(reports.map(({ outcome }) => outcome)).toContain('response_changed');
    });

    test('success without once is a failure', async () => {
      const answer = await call(
        lambda(async () => CREATED),
        request(),
      );
      expect([answer.status, answer.code]).toEqual([500, 'INTERNAL']);
      expect(reports.map(({ outcome }) => outcome)).toContain('unprotected');
    });

    test.each([
      ['the handler', undefined],
      [
        'an outer after',
        {
          after: () => {
            throw new Error('late');
          },
        },
      ],
      [
        'an outer after, and an onError that hides it',
        {
          after: () => {
            throw new Error('late');
          },
          onError: (request: { response: unknown }) => {
            request.response = { statusCode: 500 };
          },
        },
      ],
    ])('a response of once stays final when %s throws (C08)', async (_who, outer) => {
      const handler = lambda(
        async ({ once, principal }) => {
          const response = await once(open.work(principal, () => CREATED));
          if (!outer) throw new Error('late');
          return response;
        },
        outer ? { outer: outer as Middleware<Handle> } : {},
      );
      const sent = request();
      const first = await call(handler, sent);
      expect([first.status, first.text]).toEqual([201, CREATED.body]);
      const again = await call(handler, sent);
      if (redis === 'on' || rig.traits.replaysWithoutRedis) expectRepeat(again, first);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('a hook that makes a success of a failure does not hide it (C79)', async () => {
      const outer = {
        onError: (request: { response: unknown }) => {
          request.response = { statusCode: 200 };
        },
      };
      let calls = 0;
      const handler = doing(
        () => {
          calls++;
          if (calls === 1) throw new Error('boom');
          return CREATED;
        },
        { outer: outer as Middleware<Handle> },
      );
      const sent = request();
      expect((await call(handler, sent)).status).toBe(500);
      expect((await call(handler, sent)).status).toBe(201);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('an error that an earlier middleware throws goes out, and nothing is claimed (C09)', async () => {
      const denied = Object.assign(new Error('denied'), { statusCode: 401, expose: true });
      const outer = {
        before: () => {
          throw denied;
        },
      };
      const sent = request();
      const answer = await call(
        doing(() => CREATED, { outer: outer as Middleware<Handle> }),
        sent,
      );
      expect([answer.status, answer.code]).toEqual([401, 'UNAUTHENTICATED']);
      expect([await open.effects(sent.principal), await open.claims(sent.principal)]).toEqual([
        0, 0,
      ]);
    });

    test('a change that the handler makes to the event changes nothing (C04)', async () => {
      const handler = lambda(({ once, principal }, event) => {
        Object.assign(event, { body: 'changed', headers: {}, rawPath: '/elsewhere' });
        return once(open.work(principal, () => CREATED));
      });
      const sent = request();
      const first = await call(handler, sent);
      expectRepeatIfKept(await call(handler, sent), first);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    /** For handlers in which Redis does not die. */
    function expectRepeatIfKept(answer: Answer, first: Answer): void {
      if (redis === 'dies' && answer.status === 201) {
        expect(answer.text).toBe(first.text);
        return;
      }
      expectRepeat(answer, first);
    }

    test('a request without a key is refused where one is required, and runs twice where it is optional (C06)', async () => {
      const sent = { ...request(), key: null };
      expect(
        (
          await call(
            doing(() => CREATED),
            sent,
          )
        ).code,
      ).toBe('KEY_REQUIRED');
      expect(await open.effects(sent.principal)).toBe(0);
      const handler = doing(() => CREATED, { keyMode: 'optional' });
      for (const answer of [await call(handler, sent), await call(handler, sent)]) {
        expect(answer.status).toBe(201);
        expect(answer.headers['idempotency-expires']).toBeUndefined();
      }
      expect([await open.effects(sent.principal), await open.claims(sent.principal)]).toEqual([
        2, 0,
      ]);
      expect(reports.filter(({ outcome }) => outcome === 'key_empty')).toHaveLength(2);
    });

    test('a request without a principal does not reach the store', async () => {
      const answer = await call(
        doing(() => CREATED),
        { ...request(), principal: undefined },
      );
      expect([answer.status, answer.code]).toEqual([401, 'UNAUTHENTICATED']);
    });

    test('a store that cannot be reached is 503 without an effect, and works again when it can (C20, C45)', async () => {
      const handler = doing(() => CREATED);
      const sent = request();
      await open.breakStore();
      const answer = await call(handler, sent);
      expect([answer.status, answer.code]).toEqual([503, 'UNAVAILABLE']);
      expect(answer.headers['retry-after']).toMatch(/^[12]$/);
      await open.mendStore();
      expect((await call(handler, sent)).status).toBe(201);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('work that outlasts the deadline is cut off without effect or claim, and the retry runs (C83)', async () => {
      let isSlow = true;
      const gate = Promise.withResolvers<void>();
      const handler = doing(async () => {
        if (isSlow) await gate.promise;
        return CREATED;
      });
      // The claim is given back on another connection, which is not to be made first.
      const quick = doing(() => CREATED);
      await Promise.all([call(quick, request()), call(quick, request())]);
      const sent = request();
      const late = await call(handler, sent, 2000);
      expect([late.status, late.code]).toEqual([503, 'UNAVAILABLE']);
      isSlow = false;
      gate.resolve();
      expect([await open.effects(sent.principal), await open.claims(sent.principal)]).toEqual([
        0, 0,
      ]);
      expect((await call(handler, sent)).status).toBe(201);
      expect(await open.effects(sent.principal)).toBe(1);
    });

    test('parallel requests in one process share nothing (C107)', async () => {
      const handler = lambda(({ once, principal }) =>
        once(open.work(principal, () => ({ statusCode: 200, body: principal }))),
      );
      const all = Array.from({ length: 20 }, () => request());
      const answers = await Promise.all(all.map((sent) => call(handler, sent)));
      expect(answers.map(({ text }) => text)).toEqual(all.map(({ principal }) => principal));
    });

    test('every request says how it ended and which layer decided', async () => {
      const handler = doing(() => CREATED);
      const sent = request();
      await call(handler, sent);
      await call(handler, sent);
      expect(reports[0]).toMatchObject({ outcome: 'committed', layer: 'handler', attempts: 1 });
      expect(reports[1]).toMatchObject({ outcome: remembers ? 'replayed' : 'already_exists' });
      expect(reports[1]?.layer).toBe(redis === 'on' ? 'L1' : 'L2');
      expect(JSON.stringify(reports)).not.toContain(sent.key);
    });
  });
}
