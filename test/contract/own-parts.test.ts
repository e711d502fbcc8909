/** Parts of anybody's own: a store that is a class, a codec, a cache that holds what cannot be read. */
import middy, { type MiddlewareObj } from '@middy/core';
import httpErrorHandler from '@middy/http-error-handler';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type Cache,
  type Codec,
  type HttpEvent,
  type HttpResponse,
  type Mutation,
  NO_CACHE,
  type OpenTransaction,
  RejectedError,
  runOnce,
  type Store,
  TOMBSTONE,
} from '../../shared/index.ts';
import {
  idempotency,
  type OnceContext,
  problemResponses,
  type Report,
} from '../../shared/lambda/index.ts';
import { markerStore, type Tx } from '../../shared/postgres/index.ts';
import { createRedis, redisClaimCache, redisResponseCache } from '../../shared/redis/index.ts';
import type { Handler } from '../../shared/service/index.ts';
import { markersOf } from '../support/database.ts';
import { httpEvent, lambdaContext, newKey } from '../support/requests.ts';
import { type Fixture, openFixture, sendEvent } from './support.ts';

let fixture: Fixture;
beforeAll(async () => {
  fixture = await openFixture();
});
afterAll(() => fixture.close());

const store = () =>
  markerStore({ database: fixture.service.database, ...fixture.service.settings.markers });

function handlerOn(given: Store<Tx>, cache: Cache, cacheMode: 'first' | 'parallel', work = done) {
  const reports: Report[] = [];
  const report = (told: Report) => void reports.push(told);
  const handler = middy<HttpEvent, HttpResponse, Error, OnceContext<Tx>>({
    timeoutEarlyInMillis: 0,
  })
    .use(problemResponses({ report }) as MiddlewareObj)
    .use(
      idempotency<Tx>({
        store: given,
        cache,
        cacheMode,
        keyMode: 'required',
        storedBodyBytesMax: 100_000,
        answerMarginMs: 1000,
        requestTimeoutMs: 10_000,
        report,
      }),
    )
    .handler((_event, { once }) => once(work)) as unknown as Handler;
  return { handler, reports };
}

async function done(tx: Tx): Promise<HttpResponse> {
  await tx.query('SELECT 1');
  return { statusCode: 201, body: 'done' };
}

const newEvent = (principal: string, key = newKey()) => httpEvent({ principal, key, body: {} });

class OwnStore implements Store<Tx> {
  releases = 0;
  readonly #store = store();
  async begin(request: Parameters<Store<Tx>['begin']>[0]) {
    const begun = await this.#store.begin(request);
    return 'tx' in begun ? new OwnTransaction(begun) : begun;
  }
  async release() {
    this.releases++;
  }
}

class OwnTransaction implements OpenTransaction<Tx> {
  readonly #open: OpenTransaction<Tx>;
  constructor(open: OpenTransaction<Tx>) {
    this.#open = open;
  }
  get tx() {
    return this.#open.tx;
  }
  get claimed() {
    return this.#open.claimed;
  }
  commit(completion: Parameters<OpenTransaction<Tx>['commit']>[0]) {
    return this.#open.commit(completion);
  }
  rollback(error: unknown) {
    return this.#open.rollback(error);
  }
  cancel() {
    return this.#open.cancel();
  }
}

describe.each(['first', 'parallel'] as const)('a store that is a class, cache mode %s', (mode) => {
  test('its methods are called on it, and a failed work releases its claim', async () => {
    const own = new OwnStore();
    const { handler } = handlerOn(own, NO_CACHE, mode);
    const principal = newKey();
    const event = newEvent(principal);
    expect((await sendEvent(handler, event)).status).toBe(201);
    expect((await sendEvent(handler, event)).code).toBe('ALREADY_EXISTS');
    expect(await markersOf(fixture.db, principal)).toHaveLength(1);
    const failing = handlerOn(own, NO_CACHE, mode, async () => {
      throw new Error('no');
    });
    expect((await sendEvent(failing.handler, newEvent(principal))).status).toBe(500);
    expect(own.releases).toBe(1);
  });

  test('an unreadable entry of the cache is a miss, whatever request it names', async () => {
    const unreadable: Cache = {
      claim: async () => ({
        lookup: { kind: 'completed', fingerprint: '1:other', kept: null, expiresAtMs: 9e12 },
        publish: async () => {},
        release: async () => {},
      }),
    };
    const { handler } = handlerOn(store(), unreadable, mode);
    expect((await sendEvent(handler, newEvent(newKey()))).status).toBe(201);
  });
});

describe('a rejection that is thrown outside of once is a 503', () => {
  const away = () => {
    throw new RejectedError({ kind: 'rejected', code: 'UNAVAILABLE', cause: new Error('away') });
  };
  type Step = MiddlewareObj<HttpEvent, HttpResponse, Error, OnceContext<Tx>>;
  type Stack = middy.MiddyfiedHandler<HttpEvent, HttpResponse, Error, OnceContext<Tx>>;
  const protection = () =>
    idempotency<Tx>({
      store: store(),
      cache: NO_CACHE,
      keyMode: 'required',
      storedBodyBytesMax: 1000,
      answerMarginMs: 1000,
      requestTimeoutMs: 10_000,
      report: () => {},
    });

  test.each<[string, (stack: Stack) => unknown]>([
    [
      'behind http-error-handler, without problemResponses',
      (stack) =>
        stack
          .use(httpErrorHandler({ logger: false }) as Step)
          .use(protection())
          .handler(away),
    ],
    [
      'by a middleware before problemResponses',
      (stack) =>
        stack
          .use({ before: away })
          .use(problemResponses({ report: () => {} }) as Step)
          .handler(async () => ({ statusCode: 200 })),
    ],
  ])('thrown %s, it is answered with a Retry-After', async (_, build) => {
    const stack = middy<HttpEvent, HttpResponse, Error, OnceContext<Tx>>({
      timeoutEarlyInMillis: 0,
    });
    const handler = build(stack) as Handler;
    const response = await handler(newEvent(newKey()), lambdaContext());
    expect([response.statusCode, response.headers?.['retry-after']]).toEqual([503, '1']);
  });
});

describe('runOnce with a codec of numbers', () => {
  const NUMBERS: Codec<number, number> = {
    accept: (returned) => returned,
    isRefusal: (number) => number < 0,
    isFailure: Number.isNaN,
    encode: (number) => (number > 1000 ? TOMBSTONE : { number }),
    // Careless on purpose: it would take any object, and throws for the rest.
    decode: (kept) => (kept as { number: number }).number ?? Number(kept),
  };

  async function numbers() {
    const redis = createRedis({
      url: fixture.redis.options.host
        ? `redis://${fixture.redis.options.host}:${fixture.redis.options.port}`
        : '',
      commandTimeoutMs: 5000,
      onError: () => {},
    });
    const cache = redisClaimCache({
      redis,
      namespace: newKey(),
      connectBudgetMs: 5000,
      coolDownMs: 1000,
      onFailure: () => {},
    });
    const mutation: Mutation = {
      principal: newKey(),
      key: newKey(),
      endpoint: 'add',
      fingerprint: '1:x',
      token: crypto.randomUUID(),
      deadlineMs: Date.now() + 20_000,
    };
    const parts = { store: store(), cache, codec: NUMBERS };
    const run = async (number: number, given: Partial<typeof parts> = {}) => {
      const again = { ...mutation, token: crypto.randomUUID() };
      const ending = await runOnce(again, async (_tx: Tx) => number, { ...parts, ...given });
      await ending.published;
      return ending.outcome;
    };
    return { run, close: () => redis.disconnect() };
  }

  test('a result is replayed, and one that is too large is used up', async () => {
    const small = await numbers();
    expect(await small.run(7)).toMatchObject({ kind: 'committed', result: 7 });
    expect(await small.run(8)).toMatchObject({ kind: 'replayed', result: 7 });
    small.close();
    const large = await numbers();
    expect(await large.run(5000)).toMatchObject({ kind: 'committed', result: 5000 });
    expect(await large.run(8)).toMatchObject({ kind: 'rejected', code: 'ALREADY_EXISTS' });
    large.close();
  });

  test('a cache that rejects changes no outcome and leaves no transaction open', async () => {
    const { run, close } = await numbers();
    const rejecting: Cache = { claim: () => Promise.reject(new Error('no cache')) };
    expect(await run(1, { cache: rejecting })).toMatchObject({ kind: 'committed', result: 1 });
    const { pool } = fixture.service.database;
    expect(pool.idleCount).toBe(pool.totalCount);
    close();
  });
});

test('a cache of results is not made without what tells two requests apart', () => {
  const options = { namespace: 'x', store: 'record', redis: {}, connectBudgetMs: 1, coolDownMs: 1 };
  expect(() => redisResponseCache({ ...options, onFailure: () => {} } as never)).toThrow(
    /isPerEndpoint must be true \(recordStore\) or false/,
  );
});
