/** Every exit without an acknowledged COMMIT gives the key back, and nobody else's key. */
import { beforeEach, describe, expect, test } from 'vitest';
import { Problem } from '../../../shared/index.ts';
import { openSession } from '../../support/database.ts';
import { working } from '../../support/patience.ts';
import { ENTRIES } from '../../support/redis.ts';
import { type Answer, send } from '../../support/requests.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';
import {
  COINS,
  effectsOn,
  handlerEndingWith,
  holdPlayer,
  kindOf,
  markersFor,
  newRequest,
  PATIENT,
  type Spender,
  type SpendRequest,
  useServers,
  warmSpender,
} from './servers.ts';

const servers = useServers(PATIENT);
let s: Spender;
let request: SpendRequest;
beforeEach(async () => {
  s = await warmSpender(servers);
  request = await newRequest(servers);
});

interface Exit {
  readonly name: string;
  /** Sends the request, and makes it end like this. */
  send(): Promise<Answer>;
  readonly answer: string;
  readonly retryAfter?: string;
  /** What the next one with this key hears, once all is well again. */
  readonly next: string;
}

const EXITS: Exit[] = [
  {
    name: 'the work throws a problem',
    send: () => send(throwing(new Problem('NOT_FOUND', 'Thrown by the test.')), request),
    answer: '404 NOT_FOUND',
    next: '200 fresh',
  },
  {
    name: 'the work throws an error',
    send: () => send(throwing(new Error('Thrown by the test.')), request),
    answer: '500 INTERNAL',
    next: '200 fresh',
  },
  {
    name: 'the work throws what is no error',
    send: () => send(throwing(undefined), request),
    answer: '500 INTERNAL',
    next: '200 fresh',
  },
  {
    name: 'the work returns a 5xx',
    send: () =>
      send(
        handlerEndingWith(s.service, async () => ({ statusCode: 502, body: 'upstream' })),
        request,
      ),
    answer: '502 fresh',
    next: '200 fresh',
  },
  {
    name: 'the work returns what is no response',
    send: () =>
      send(
        handlerEndingWith(s.service, async () => ({}) as never),
        request,
      ),
    answer: '500 INTERNAL',
    next: '200 fresh',
  },
  {
    name: 'If-Match is stale',
    send: () => send(s.spend, { ...request, headers: { 'if-match': '"9"' } }),
    answer: '412 VERSION_MISMATCH',
    next: '200 fresh',
  },
  {
    name: 'the key was used up',
    send: async () => {
      await send(s.spend, request);
      await servers.redis.raw.flushall();
      return send(s.spend, request);
    },
    answer: '409 ALREADY_EXISTS',
    next: '409 ALREADY_EXISTS',
  },
  {
    name: 'another transaction holds the marker past the deadline',
    send: async () => {
      const other = await openSession(servers.db.adminUrl);
      await other.query('BEGIN');
      await other.query(
        'INSERT INTO player_mutation_idempotency (user_id, request_id) VALUES ($1, $2)',
        [request.principal, request.key],
      );
      const answer = send(s.spend, request, working(1000));
      await seenBlocked(servers.db);
      const aborted = await answer;
      await other.query('ROLLBACK');
      return aborted;
    },
    answer: '409 ABORTED',
    retryAfter: '1',
    next: '200 fresh',
  },
  {
    name: 'another transaction holds the row past the deadline',
    send: async () => {
      const letGo = await holdPlayer(servers, request);
      const answer = send(s.spend, request, working(1000));
      await seenBlocked(servers.db);
      const contended = await answer;
      await letGo();
      return contended;
    },
    answer: '409 CONTENTION',
    retryAfter: '1',
    next: '200 fresh',
  },
  {
    name: 'no time is left',
    send: () => send(s.spend, request, working(-10)),
    answer: '503 UNAVAILABLE',
    retryAfter: '1',
    next: '200 fresh',
  },
  {
    name: 'Postgres is down',
    send: async () => {
      await servers.postgresProxy.refuse();
      const answer = await send(s.spend, request);
      await servers.postgresProxy.pass();
      return answer;
    },
    answer: '503 UNAVAILABLE',
    retryAfter: '1',
    next: '200 fresh',
  },
  {
    name: 'the answer to COMMIT is lost, and Postgres with it',
    send: async () => {
      const lost = servers.postgresProxy.dropAfter('COMMIT\0').then(servers.postgresProxy.refuse);
      const answer = await send(s.spend, request, working(1000));
      await lost;
      await servers.postgresProxy.pass();
      return answer;
    },
    answer: '503 OUTCOME_UNKNOWN',
    retryAfter: '1',
    next: '409 ALREADY_EXISTS',
  },
];

const throwing = (error: unknown) =>
  handlerEndingWith(s.service, async () => {
    throw error;
  });

describe.each(EXITS)('a request ends as $name', (exit) => {
  test(`the answer is ${exit.answer}, the entry is gone, and the next request is ${exit.next}`, async () => {
    const answer = await exit.send();
    expect(kindOf(answer)).toBe(exit.answer);
    expect(answer.headers['retry-after']).toBe(exit.retryAfter);
    expect(await servers.redis.entries()).toEqual([]);
    expect(s.failures).not.toHaveBeenCalled();
    // The pool may have to replace what was cut.
    const next = await eventually(async () => {
      const again = await send(s.spend, request);
      return again.code !== 'UNAVAILABLE' && again;
    }, 'Postgres back');
    expect(kindOf(next)).toBe(exit.next);
    expect(await effectsOn(servers, request)).toBe(1);
  });
});

test('a refusal that is returned is committed, published and replayed, not released', async () => {
  const short = { ...request, body: { amount: COINS + 1 } };
  expect(kindOf(await send(s.spend, short))).toBe('402 INSUFFICIENT_COINS');
  expect((await servers.redis.entry()).json).toMatchObject({ state: 'completed' });
  const replay = await send(s.spend, short);
  expect(kindOf(replay)).toBe('402 INSUFFICIENT_COINS');
  expect(replay.headers['idempotency-replayed']).toBe('true');
  expect(await markersFor(servers, request)).toEqual([request.key]);
  expect(await effectsOn(servers, request)).toBe(0);
});

test('a request that is refused before once claims nothing', async () => {
  const touched = servers.redisProxy.count('idem:');
  const refused = [
    await send(s.spend, { ...request, key: null }),
    await send(s.spend, { ...request, key: 'a b' }),
    await send(s.spend, { ...request, body: { amount: 0 } }),
    await send(s.spend, { ...request, rawBody: '{' }),
    await send(s.spend, { ...request, principal: undefined }),
  ];
  expect(refused.map(kindOf)).toEqual([
    '400 KEY_REQUIRED',
    '400 KEY_MALFORMED',
    '400 BODY_INVALID',
    '400 BODY_INVALID',
    '401 UNAUTHENTICATED',
  ]);
  expect(touched()).toBe(0);
  expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
});

test('a release is one command that declares its one key (C41)', async () => {
  const said = await servers.redis.monitor();
  const handler = throwing(new Problem('NOT_FOUND', 'Thrown by the test.'));
  await send(handler, request);
  const [set, release, ...others] = await said();
  const key = `${ENTRIES}${request.principal}:${request.key}`;
  expect(set?.slice(0, 2)).toEqual(['set', key]);
  expect(release).toEqual(['eval', expect.any(String), '1', key, set?.[2]]);
  // What the script does is told too.
  expect(others.map(([command]) => command?.toLowerCase())).toEqual(['get', 'del']);
});

describe('the entry of another request is never released', () => {
  test.each(['pending', 'completed'])('a %s entry in place of our own stays', async (state) => {
    const letGo = await holdPlayer(servers, request);
    const answer = send(throwing(new Problem('NOT_FOUND', 'Thrown by the test.')), request);
    await seenBlocked(servers.db);
    const { key, json } = await servers.redis.entry();
    const other = JSON.stringify({ ...json, state, token: '00000000-0000-4000-8000-000000000000' });
    await servers.redis.raw.set(key, other, 'KEEPTTL');
    await letGo();
    expect(kindOf(await answer)).toBe('404 NOT_FOUND');
    expect((await servers.redis.entry()).value).toBe(other);
  });
});
