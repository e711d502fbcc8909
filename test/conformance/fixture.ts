/** What the tests of the suite work with: an open store, the whole stack around a handler, and what to expect. */
import middy, { type MiddlewareObj } from '@middy/core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { CacheMode, HttpEvent, HttpResponse, Problem } from '../../shared/index.ts';
import {
  idempotency,
  type KeyMode,
  type OnceContext,
  problemResponses,
  type Report,
} from '../../shared/lambda/index.ts';
import type { Handler } from '../../shared/service/index.ts';
import { expectProblem } from '../support/expect-problem.ts';
import {
  type Answer,
  lambdaContext,
  newKey,
  type RequestOptions,
  send as sendTo,
} from '../support/requests.ts';
import type { OpenStore, RedisMode, StoreHarness } from './harness.ts';

export type Respond = () => Promise<HttpResponse | Problem> | HttpResponse | Problem;
export type Middleware<Handle> = MiddlewareObj<HttpEvent, HttpResponse, Error, OnceContext<Handle>>;
type Run<Handle> = (
  context: OnceContext<Handle>,
  event: HttpEvent,
) => Promise<HttpResponse | undefined>;

export interface Extras<Handle> {
  readonly keyMode?: KeyMode;
  readonly outer?: Middleware<Handle>;
  readonly storedBodyBytesMax?: number;
}

const STATE_URL = '/players/me';

/** A test for the stores of which this holds; for the others there is none, so that none is skipped. */
export function testWhere(holds: boolean, title: string, run: () => Promise<void>): void {
  if (holds) test(title, run);
}

export const CREATED: HttpResponse = {
  statusCode: 201,
  headers: { 'content-type': 'application/json', Location: '/things/1', ETag: '"1"' },
  body: '{"b":1,  "a":[1.0, "ü"]}',
};

export type Fixture<Handle> = ReturnType<typeof useStore<Handle>>;

/** Opens the store before the tests of the surrounding `describe`, and closes it after them. */
export function useStore<Handle>(
  harness: StoreHarness<Handle>,
  redis: RedisMode,
  cacheMode: CacheMode,
) {
  let store: OpenStore<Handle>;
  let reports: Report[];
  beforeAll(async () => {
    store = await harness.open(redis);
  });
  afterAll(() => store.close());
  beforeEach(() => {
    reports = [];
  });
  afterEach(() => store.mendStore());

  const { traits } = harness;
  /** Is a response still there for a retry? Only in Redis, or in the store as well? */
  const remembers = redis === 'on' || traits.replaysWithoutRedis;

  /** A Lambda with the whole stack around `run`. */
  function stackAround(run: Run<Handle>, extras: Extras<Handle> = {}): Handler {
    const report = (told: Report) => void reports.push(told);
    const stack = middy<HttpEvent, HttpResponse, Error, OnceContext<Handle>>({
      timeoutEarlyInMillis: 0,
    }).use(problemResponses({ report }) as Middleware<Handle>);
    if (extras.outer) stack.use(extras.outer);
    return stack
      .use(
        idempotency<Handle>({
          store: store.store,
          cache: store.cache,
          cacheMode,
          stateUrl: STATE_URL,
          storedBodyBytesMax: extras.storedBodyBytesMax ?? 100_000,
          keyMode: extras.keyMode ?? 'required',
          answerMarginMs: 1000,
          requestTimeoutMs: 10_000,
          report,
        }),
      )
      .handler((event, context) => run(context, event) as never) as unknown as Handler;
  }

  /** The common case: one effect, then `respond`; the first time, Redis may die in between. */
  function testHandler(respond: Respond, extras: Extras<Handle> = {}): Handler {
    return stackAround(
      ({ once, principal }) =>
        once(
          store.work(principal, async () => {
            await store.killRedis();
            return respond();
          }),
        ),
      extras,
    );
  }

  function send(handler: Handler, options: RequestOptions, remainingMs = 11_000): Promise<Answer> {
    return sendTo(handler, options, lambdaContext(remainingMs));
  }

  function newRequest(body: unknown = { amount: 1 }) {
    return { principal: `p-${newKey()}`, key: newKey(), body };
  }

  function expectUsedUp(answer: Answer): void {
    expectProblem(answer, 'ALREADY_EXISTS');
    expect(answer.headers['retry-after']).toBeUndefined();
    expect(answer.headers['link']).toBe(`<${STATE_URL}>; rel="related"`);
    expect(answer.json).toMatchObject({ retryable: false, state: STATE_URL });
  }

  /** What a retry of a request that has committed is answered. */
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

  /** What another request under a used key is answered. */
  function expectReused(answer: Answer): void {
    if (remembers) expectProblem(answer, 'KEY_REUSED');
    else expectUsedUp(answer);
  }

  /** Effects of a principal, and claims that stand in the store, of whatever state. */
  async function expectKept(
    { principal }: { principal: string },
    expected: { effects: number; claims: number },
  ): Promise<void> {
    const [effects, claims] = [await store.effects(principal), await store.claims(principal)];
    expect({ effects, claims }).toEqual(expected);
  }

  return {
    traits,
    redis,
    remembers,
    get store() {
      return store;
    },
    get reports() {
      return reports;
    },
    get outcomes() {
      return reports.map(({ outcome }) => outcome);
    },
    stackAround,
    testHandler,
    send,
    newRequest,
    expectUsedUp,
    expectRepeat,
    expectReused,
    expectKept,
  };
}
