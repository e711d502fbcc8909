/** Everything that can fail fails before COMMIT, and nothing after it changes the answer. */
import middy, { type MiddlewareObj } from '@middy/core';
import {
  afterAll,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
  vi,
} from 'vitest';
import {
  type Cache,
  type CacheMode,
  type HttpEvent,
  type HttpResponse,
  NO_CACHE,
  type Store,
} from '../../shared/index.ts';
import {
  idempotency,
  type OnceContext,
  problemResponses,
  type Report,
} from '../../shared/lambda/index.ts';
import { markerStore, type RecordTx, recordStore, type Tx } from '../../shared/postgres/index.ts';
import type { Handler } from '../../shared/service/index.ts';
import { markersOf, playerOf } from '../support/database.ts';
import { captureOutput } from '../support/output.ts';
import { httpEvent, newKey } from '../support/requests.ts';
import { type Fixture, openFixture, sendEvent } from './support.ts';

type Step = MiddlewareObj<HttpEvent, HttpResponse, Error, OnceContext<Tx & RecordTx>>;

let fixture: Fixture;
let reports: Report[] = [];
beforeAll(async () => {
  // One connection: what leaks it stops every request after that.
  fixture = await openFixture({ BACKSTOP_POOL_MAX: '1' });
});
beforeEach(() => {
  reports = [];
});
afterAll(() => fixture.close());

const STORES: Record<'marker' | 'record', () => Store<Tx & RecordTx>> = {
  marker: () => {
    const { settings, database } = fixture.service;
    return markerStore({ database, ...settings.markers }) as Store<Tx & RecordTx>;
  },
  record: () => {
    const { settings, database } = fixture.service;
    const { retentionMs } = settings.records;
    return recordStore({ database, retentionMs, leaseMs: 30_000 }) as Store<Tx & RecordTx>;
  },
};

interface Parts {
  readonly store?: keyof typeof STORES;
  readonly cache?: Cache;
  readonly cacheMode?: CacheMode;
  readonly report?: (report: Report) => void;
}

function lambda(
  respond: () => unknown,
  { store = 'marker', cache = NO_CACHE, cacheMode, report }: Parts = {},
): Handler {
  return middy<HttpEvent, HttpResponse, Error, OnceContext<Tx & RecordTx>>({
    timeoutEarlyInMillis: 0,
  })
    .use(problemResponses({ report: (told) => reports.push(told) }) as Step)
    .use(
      idempotency<Tx & RecordTx>({
        store: STORES[store](),
        cache,
        cacheMode,
        keyMode: 'required',
        storedBodyBytesMax: 100_000,
        answerMarginMs: 1000,
        requestTimeoutMs: 10_000,
        report: report ?? ((told) => reports.push(told)),
      }),
    )
    .handler((_event, { once, principal }) =>
      once(async (tx) => {
        await tx.query(
          'UPDATE players SET coins = coins - 1, data_version = data_version + 1 WHERE user_id = $1',
          [principal],
        );
        return respond() as HttpResponse;
      }),
    ) as unknown as Handler;
}

async function newRequest() {
  const principal = await fixture.newPlayer();
  return { principal, event: httpEvent({ principal, key: newKey(), body: {} }) };
}

const coinsOf = async (principal: string) => (await playerOf(fixture.db, principal)).coins;

const GOOD = { statusCode: 201, body: '{}' };

describe.each(['marker', 'record'] as const)('a bad response, %s store (C124, core 3)', (store) => {
  test.each<[string, object]>([
    ['headers: null', { headers: null }],
    ['a BigInt in a header', { headers: { etag: 7n } }],
    ['a name that is no token', { headers: { 'a b': 'c' } }],
    ['a line break in a value', { headers: { a: 'b\r\nset-cookie: c=d' } }],
    ['a list of headers', { headers: [['a', 'b']] }],
    ['multiValueHeaders: null', { multiValueHeaders: null }],
    ['a line break in a cookie', { cookies: ['a=b\n'] }],
    ['a status of 103', { statusCode: 103 }],
    ['a status of 600', { statusCode: 600 }],
    ['a body that is no text', { body: { a: 1 } }],
    ['a BigInt anywhere', { more: 1n }],
    ['more than 6 MB', { body: 'x'.repeat(6 * 1024 * 1024) }],
  ])('one with %s has no effect, leaves the key unused, and the log says why', async (_, part) => {
    const { principal, event } = await newRequest();
    let response: object = { ...GOOD, ...part };
    const handler = lambda(() => response, { store });
    const answer = await sendEvent(handler, event);
    expect([answer.status, answer.code]).toEqual([500, 'INTERNAL']);
    expect(await coinsOf(principal)).toBe(1000);
    expect(reports).toMatchObject([{ outcome: 'failed', error: { name: 'TypeError' } }]);

    response = GOOD;
    expect((await sendEvent(handler, event)).status).toBe(201);
    expect(await coinsOf(principal)).toBe(999);
  });

  test('a change that the work makes to its response after it returned it reaches nobody', async () => {
    const { event } = await newRequest();
    const headers: Record<string, unknown> = { etag: '"1"' };
    const handler = lambda(
      () => {
        // While COMMIT is on its way.
        setImmediate(() => Object.assign(headers, { etag: 7n, 'a b': 'c' }));
        return { ...GOOD, headers };
      },
      { store },
    );
    const answer = await sendEvent(handler, event);
    expect([answer.status, answer.headers['etag'], answer.headers['a b']]).toEqual([
      201,
      '"1"',
      undefined,
    ]);
  });
});

describe('a report after COMMIT', () => {
  test('a report that throws each time changes no answer', async () => {
    const report = () => {
      throw new Error('no space left on the metrics');
    };
    const errors = vi.spyOn(console, 'error').mockImplementation(() => {});
    onTestFinished(() => errors.mockRestore());
    const { principal, event } = await newRequest();
    expect(
      (
        await sendEvent(
          lambda(() => GOOD, { report }),
          event,
        )
      ).status,
    ).toBe(201);
    expect(await coinsOf(principal)).toBe(999);
    expect(JSON.stringify(errors.mock.calls)).toContain('no space left on the metrics');
  });

  test('a report that throws once is counted', async () => {
    const told: Report[] = [];
    const report = (report: Report) => {
      told.push(report);
      if (told.length === 1) throw new Error('once');
    };
    const { event } = await newRequest();
    expect(
      (
        await sendEvent(
          lambda(() => GOOD, { report }),
          event,
        )
      ).status,
    ).toBe(201);
    expect(told.map(({ outcome }) => outcome)).toEqual(['committed', 'report_failed']);
  });
});

describe('a cache that breaks its contract (core 18)', () => {
  const rejecting = async () => {
    throw new Error('no cache');
  };
  const throwing = () => {
    throw new Error('no cache');
  };
  const UNKNOWN = { kind: 'unknown' };
  const NO_CLAIM = { lookup: UNKNOWN, publish: async () => {}, release: async () => {} };
  const withClaim = (part: object) => ({ claim: async () => ({ ...NO_CLAIM, ...part }) });
  const CACHES: [string, unknown, number][] = [
    ['claim rejects', { claim: rejecting }, 1],
    ['claim throws', { claim: throwing }, 1],
    ['publish and release reject', withClaim({ publish: rejecting, release: rejecting }), 1],
    ['publish and release throw', withClaim({ publish: throwing, release: throwing }), 1],
    ['claim resolves with nothing', { claim: async () => undefined }, 1],
    ['claim resolves without its methods', { claim: async () => ({ lookup: UNKNOWN }) }, 1],
    ['claim resolves with a lookup of no kind', withClaim({ lookup: { kind: 'taken' } }), 1],
    [
      'claim resolves with an answer that sets a cookie',
      {
        claim: async ({ fingerprint }: { fingerprint: string }) => ({
          ...NO_CLAIM,
          lookup: {
            kind: 'completed',
            fingerprint,
            expiresAtMs: 9e12,
            kept: { ...GOOD, isBase64Encoded: false, headers: { 'set-cookie': 'a=b' } },
          },
        }),
      },
      0,
    ],
  ];

  describe.each(['first', 'parallel'] as const)('in cache mode %s', (cacheMode) => {
    test.each(CACHES)('%s, which is counted and changes no answer', async (_, given, failures) => {
      const cache = given as Cache;
      const { principal, event } = await newRequest();
      const handler = lambda(() => GOOD, { cache, cacheMode });
      expect((await sendEvent(handler, event)).status).toBe(201);
      expect(reports.filter(({ outcome }) => outcome === 'cache_failed')).toHaveLength(failures);
      expect((await sendEvent(handler, event)).code).toBe('ALREADY_EXISTS');
      expect(await coinsOf(principal)).toBe(999);
      expect(await markersOf(fixture.db, principal)).toHaveLength(1);
      // No connection is lost, and none stands in a transaction.
      const { pool } = fixture.service.database;
      expect([pool.totalCount, pool.idleCount, pool.waitingCount]).toEqual([1, 1, 0]);
      expect(
        await fixture.db.sql(
          `SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND state LIKE 'idle in transaction%'`,
        ),
      ).toEqual([]);
    });
  });

  test('a release that rejects leaves the error of the work as it is', async () => {
    const cache = withClaim({ release: rejecting }) as Cache;
    const { event } = await newRequest();
    const handler = lambda(
      () => {
        throw Object.assign(new Error('No'), { statusCode: 403 });
      },
      { cache },
    );
    expect((await sendEvent(handler, event)).status).toBe(403);
    expect(reports.map(({ outcome }) => outcome)).toEqual(['cache_failed', 'failed']);
  });
});

describe('the log holds nothing secret (core 8)', () => {
  const SECRET = 'hunter2';
  const captured = () => {
    const { logger } = fixture.service;
    const level = logger.getLevelName();
    logger.setLogLevel('INFO');
    onTestFinished(() => logger.setLogLevel(level));
    const lines = captureOutput();
    // Errors are written to the other stream.
    const write = vi.spyOn(process.stderr, 'write').mockImplementation((chunk) => {
      lines.push(
        ...String(chunk)
          .split('\n')
          .filter(Boolean)
          .map((line) => JSON.parse(line)),
      );
      return true;
    });
    onTestFinished(() => write.mockRestore());
    return lines;
  };
  const service = (run: Parameters<Fixture['service']['mutation']>[0]['run']) =>
    fixture.service.mutation({ name: 'logged', body: undefined, stateUrl: '/', run });

  test.each([
    '{"amount": 10, "password": "hunter2",}',
    '{"amount": 10, "password": hunter2}',
    'hunter2',
    '{"hunter2',
  ])('the body %s, which is no JSON, is not logged', async (rawBody) => {
    const lines = captured();
    const event = httpEvent({ principal: newKey(), key: newKey(), rawBody });
    const answer = await sendEvent(fixture.spend, event);
    expect([answer.status, answer.code]).toEqual([400, 'BODY_INVALID']);
    expect(answer.text).not.toContain(SECRET);
    expect(lines.filter(({ level }) => level === 'ERROR')).toEqual([]);
    expect(lines).toContainEqual(
      expect.objectContaining({ level: 'INFO', function: 'spend-coins' }),
    );
    expect(JSON.stringify(lines)).not.toContain(SECRET);
  });

  test.each<[string, () => unknown]>([
    ['a refusal of http-errors', () => Object.assign(new Error('No'), { statusCode: 409 })],
    [
      'an error with properties of its own',
      () => Object.assign(new Error('boom'), { detail: SECRET, parameters: [SECRET] }),
    ],
    [
      'one with a cause that has them',
      () =>
        new Error('boom', {
          cause: Object.assign(new Error('inner'), { CancellationReasons: [{ Item: SECRET }] }),
        }),
    ],
    ['one whose cause is no error', () => new Error('boom', { cause: { data: SECRET } })],
    ['one whose cause is text', () => new Error('boom', { cause: SECRET })],
    ['what is no error', () => ({ password: SECRET })],
    ['the error of a parser', () => parseError(`{"password": ${SECRET}}`)],
    ['one that has it as its cause', () => new Error('boom', { cause: parseError(SECRET) })],
  ])('%s does not bring its secret into the log', async (_, errorOf) => {
    const lines = captured();
    const handler = service(({ once }) =>
      once(async () => {
        throw errorOf();
      }),
    );
    const event = httpEvent({ principal: newKey(), key: newKey(), body: {} });
    const { status } = await sendEvent(handler, event);
    const errors = lines.filter(({ level }) => level === 'ERROR');
    expect(errors).toHaveLength(status === 500 ? 1 : 0);
    expect(JSON.stringify(lines)).not.toContain(SECRET);
  });

  test('a row that Postgres names in the detail of its error is not logged', async () => {
    const lines = captured();
    const handler = service(({ once }) =>
      once(async (tx) => {
        await tx.query('INSERT INTO players (user_id) VALUES ($1)', [SECRET]);
        await tx.query('INSERT INTO players (user_id) VALUES ($1)', [SECRET]);
        return { statusCode: 204 };
      }),
    );
    const event = httpEvent({ principal: newKey(), key: newKey(), body: {} });
    expect((await sendEvent(handler, event)).status).toBe(500);
    expect(lines).toContainEqual(
      expect.objectContaining({
        level: 'ERROR',
        error: expect.objectContaining({ code: '23505' }),
      }),
    );
    expect(JSON.stringify(lines)).not.toContain(SECRET);
  });

  function parseError(text: string): unknown {
    try {
      return JSON.parse(text);
    } catch (error) {
      return error;
    }
  }
});

test('a route without a schema has a size limit too, before anybody reads the body (core 9)', async () => {
  let isRun = false;
  const handler = fixture.service.mutation({
    name: 'bodyless',
    body: undefined,
    stateUrl: '/',
    run: async ({ once }) => {
      isRun = true;
      return once(async () => ({ statusCode: 204 }));
    },
  });
  const principal = newKey();
  const max = fixture.service.settings.requests.bodyBytesMax;
  for (const rawBody of [
    `[${'1,'.repeat(3_000_000)}1]`,
    ' '.repeat(max + 1),
    'x'.repeat(max + 1),
  ]) {
    const answer = await sendEvent(handler, httpEvent({ principal, key: newKey(), rawBody }));
    expect([answer.status, answer.code]).toEqual([413, 'PAYLOAD_TOO_LARGE']);
  }
  expect(isRun).toBe(false);
  const rawBody = 'x'.repeat(max);
  const headers = { 'content-type': 'text/plain' };
  const event = httpEvent({ principal, key: newKey(), rawBody, headers });
  expect((await sendEvent(handler, event)).status).toBe(204);
});
