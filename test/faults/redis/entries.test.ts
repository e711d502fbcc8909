/** What stands under a key: its form, its time, its name, and what L1 makes of anything else there. */
import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, test } from 'vitest';
import { readRequest } from '../../../shared/http/request.ts';
import { requestFingerprint } from '../../../shared/http/request-fingerprint.ts';
import { ConfigError } from '../../../shared/index.ts';
import { createRedis } from '../../../shared/redis/index.ts';
import { createService } from '../../../shared/service/index.ts';
import { seedPlayer } from '../../support/database.ts';
import { ANSWER_MARGIN_MS } from '../../support/patience.ts';
import { ENTRIES } from '../../support/redis.ts';
import { httpEvent, newKey, send } from '../../support/requests.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';
import {
  COINS,
  claimCacheOn,
  countKinds,
  effectsOn,
  holdPlayer,
  kindOf,
  markersFor,
  newRequest,
  PATIENT,
  type Spender,
  type SpendRequest,
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

const printOf = (of: SpendRequest) => requestFingerprint(of.principal, readRequest(httpEvent(of)));
const nameOf = ({ principal, key }: SpendRequest) => `${ENTRIES}${principal}:${key}`;

describe('every entry ends by itself, at an absolute time (C33)', () => {
  test('one SET claims, one SET publishes, and nothing else is sent to Redis', async () => {
    s = await warmSpender(servers); // Its connection check and its first claim are over.
    const said = await servers.redis.monitor();
    await send(s.spend, request);
    await send(s.spend, request);
    const set = ['set', nameOf(request), expect.any(String), 'PXAT', expect.any(String)];
    expect(await said()).toEqual([[...set, 'NX', 'GET'], set, [...set, 'NX', 'GET']]);
  });

  test('a pending entry ends shortly after its deadline, also while the owner is at work', async () => {
    const letGo = await holdPlayer(servers, request);
    const sentMs = Date.now();
    const answer = send(s.spend, request);
    await seenBlocked(servers.db);
    const entry = await servers.redis.entry();
    expect(entry.key).toBe(nameOf(request));
    expect(entry.json).toMatchObject({ state: 'pending' });
    // 28 s of Lambda time, less the margin for the answer, plus 1 s for its release.
    const deadlineMs = Number(entry.json?.['deadlineMs']);
    expect(deadlineMs - sentMs - 28_000 + ANSWER_MARGIN_MS).toBeGreaterThanOrEqual(-1);
    expect(deadlineMs - sentMs - 28_000 + ANSWER_MARGIN_MS).toBeLessThan(2000);
    expect(entry.expiresAtMs - deadlineMs - 1000).toBeGreaterThanOrEqual(0);
    expect(entry.expiresAtMs - deadlineMs - 1000).toBeLessThanOrEqual(1);
    expect(entry.leftMs).toBeGreaterThan(0);
    await letGo();
    expect(kindOf(await answer)).toBe('200 fresh');
    expect((await servers.redis.entry()).json).toMatchObject({ state: 'completed' });
  });

  test('a completed entry ends at created_at + retention of the marker, as Idempotency-Expires says twice', async () => {
    const fresh = await send(s.spend, request);
    const replay = await send(s.spend, request);
    expect([kindOf(fresh), kindOf(replay)]).toEqual(['200 fresh', '200 replayed']);
    const entry = await servers.redis.entry();
    const [marker] = await servers.db.sql<{ expires: string }>(
      `SELECT floor(extract(epoch FROM created_at) * 1000) + 3600000 AS expires
         FROM player_mutation_idempotency WHERE user_id = $1`,
      [request.principal],
    );
    expect(entry.expiresAtMs).toBe(Number(marker?.expires));
    const header = new Date(Math.floor(entry.expiresAtMs / 1000) * 1000).toUTCString();
    expect(fresh.headers['idempotency-expires']).toBe(header);
    expect(replay.headers['idempotency-expires']).toBe(header);
    expect(entry.leftMs).toBeGreaterThan(3_590_000);
  });

  test('a pending entry that nobody works on ends, and the key can be used', async () => {
    const fingerprint = printOf(request);
    const deadlineMs = Date.now() + 900;
    const pending = { v: 1, state: 'pending', fingerprint, token: randomUUID(), deadlineMs };
    await servers.redis.raw.set(nameOf(request), JSON.stringify(pending), 'PXAT', deadlineMs);
    const busy = await send(s.spend, request);
    expect([kindOf(busy), busy.headers['retry-after']]).toEqual(['409 ABORTED', '1']);
    await eventually(async () => (await servers.redis.entries()).length === 0, 'expired');
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test('a command that arrives after its time stores nothing', async () => {
    const redis = createRedis({
      url: servers.redisProxy.url,
      commandTimeoutMs: 100,
      onError: () => {},
    });
    const { path, failures } = claimCacheOn(redis);
    await path.claim(mutation(Date.now() + 10_000));
    await servers.redis.raw.flushall();

    // The pending entry's own second of grace has passed before the command arrives.
    const late = mutation(Date.now() - 700);
    const held = servers.redisProxy.holdAt('pending');
    const claim = await path.claim(late);
    expect(claim.lookup).toEqual({ kind: 'unknown' });
    await held;
    const response = { statusCode: 200, headers: {}, body: '', isBase64Encoded: false };
    await claim.publish(response, Date.now() + 200);
    expect(failures).toEqual(['claim', 'publish']);
    await eventually(async () => Date.now() > late.deadlineMs + 1100, 'both times past');
    const written = await setsProcessed();
    await servers.redisProxy.pass();
    await eventually(async () => (await setsProcessed()) === written + 2, 'both carried out');
    expect(await servers.redis.entries()).toEqual([]);
  });

  const mutation = (deadlineMs: number) => ({
    principal: 'late',
    key: newKey(),
    endpoint: 'POST /late',
    fingerprint: '1:late',
    token: randomUUID(),
    deadlineMs,
  });
});

async function setsProcessed(): Promise<number> {
  const info = await servers.redis.raw.info('commandstats');
  return Number(/cmdstat_set:calls=(\d+)/.exec(info)?.[1] ?? 0);
}

/** Completed by this very request, in our format, but for `changes`; read as it is, it would answer 202. */
function completed(changes: object = {}): string {
  const response = { statusCode: 202, headers: {}, body: 'seeded', isBase64Encoded: false };
  const entry = { v: 1, state: 'completed', fingerprint: printOf(request), response };
  return JSON.stringify({ ...entry, expiresAtMs: Date.now() + 60_000, ...changes });
}

const UNREADABLE: [string, () => Promise<unknown>][] = [
  ...(
    [
      ['nothing', () => ''],
      ['garbage', () => 'garbage'],
      ['bytes', () => Buffer.from([0, 0xff, 0xfe, 0x22])],
      ['truncated JSON', () => completed().slice(0, -7)],
      ['null', () => 'null'],
      ['an array', () => `[${completed()}]`],
      ['another version', () => completed({ v: 2 })],
      ['no version', () => completed({ v: undefined })],
      ['another state', () => completed({ state: 'failed' })],
      ['completed without a response', () => completed({ response: undefined })],
      ['completed with the response null', () => completed({ response: null })],
      ['a response without a body', () => completed({ response: { statusCode: 202 } })],
      ['a status that is text', () => completed({ response: { statusCode: '202', body: '' } })],
      ['a body that is none', () => completed({ response: { statusCode: 202, body: {} } })],
      ['no expiry', () => completed({ expiresAtMs: undefined })],
      ['no fingerprint', () => completed({ fingerprint: undefined })],
      ['pending without a deadline', () => completed({ state: 'pending' })],
    ] satisfies [string, () => string | Buffer][]
  ).map(([name, value]): [string, () => Promise<unknown>] => [
    name,
    () => servers.redis.raw.set(nameOf(request), value()),
  ]),
  ['a list', () => servers.redis.raw.rpush(nameOf(request), completed())],
  ['a hash', () => servers.redis.raw.hset(nameOf(request), 'state', 'completed')],
  ['a set', () => servers.redis.raw.sadd(nameOf(request), completed())],
  ['a stream', () => servers.redis.raw.xadd(nameOf(request), '*', 'state', 'completed')],
];

test('the entry that the tests below spoil is read as it is', async () => {
  await servers.redis.raw.set(nameOf(request), completed());
  expect(kindOf(await send(s.spend, request))).toBe('202 replayed');
});

describe.each(UNREADABLE)('an entry that is %s counts as a miss (C18, C19)', (_name, seed) => {
  test('a first request runs, and overwrites the entry', async () => {
    await seed();
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(kindOf(await send(s.spend, request))).toBe('200 replayed');
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test('a repeated request is answered by the marker', async () => {
    await send(s.spend, request);
    await servers.redis.raw.flushall();
    await seed();
    expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test('a request that fails says why, and leaves the entry to whoever put it there', async () => {
    await seed();
    const late = { ...request, headers: { 'if-match': '"9"' } };
    expect(kindOf(await send(s.spend, late))).toBe('412 VERSION_MISMATCH');
    expect(await servers.redis.raw.exists(nameOf(request))).toBe(1);
    expect(await markersFor(servers, request)).toEqual([]);
  });
});

test('values of another type are no outage, and the cache goes on for the other keys (C19)', async () => {
  s = await warmSpender(servers, { BACKSTOP_REDIS_COOL_DOWN_MS: '600000' });
  const late = ['k1', 'k2', 'k3', 'k4'].map((key) => ({
    ...request,
    key,
    headers: { 'if-match': '"9"' },
  }));
  await Promise.all(late.map((each) => servers.redis.raw.rpush(nameOf(each), 'garbage')));
  const answers = await Promise.all(late.map((each) => send(s.spend, each)));
  expect(countKinds(answers)).toEqual({ '412 VERSION_MISMATCH': 4 });
  expect(s.failures.mock.calls).toEqual([['claim'], ['claim'], ['claim'], ['claim']]);
  // A cool-down would outlast the test; a Redis that is slow just now is asked again.
  await eventually(async () => {
    const other = { ...request, key: newKey() };
    expect(kindOf(await send(s.spend, other))).toBe('200 fresh');
    return kindOf(await send(s.spend, other)) === '200 replayed';
  }, 'another key that L1 replays');
});

test('a body over the cap is sent whole once, and is then a tombstone from the cache alone', async () => {
  s = spender(servers, { BACKSTOP_STORED_BODY_BYTES_MAX: '10' });
  const fresh = await send(s.spend, request);
  expect(fresh.json).toEqual({ userId: request.principal, coins: COINS - 10, dataVersion: '2' });
  expect((await servers.redis.entry()).json).toMatchObject({ response: 'tombstone' });
  await servers.postgresProxy.refuse();
  const again = await send(s.spend, request);
  expect(kindOf(again)).toBe('409 ALREADY_EXISTS');
  expect(again.headers['link']).toBe('</players/me>; rel="related"');
  expect(again.headers['retry-after']).toBeUndefined();
  expect(again.json).toMatchObject({ state: '/players/me', retryable: false });
  expect(await effectsOn(servers, request)).toBe(1);
});

test('the parts of a name are encoded, so that no delimiter makes one of two (C87)', async () => {
  const one = { ...request, principal: 't1', key: 'a:b' };
  const two = { ...request, principal: 't1:a', key: 'b' };
  const odd = { ...request, principal: 'ü|%3A*{}', key: '%3A"/' };
  for (const each of [one, two, odd]) {
    await seedPlayer(servers.db, each.principal, COINS);
    expect(kindOf(await send(s.spend, each))).toBe('200 fresh');
    const again = await send(s.spend, each);
    expect(kindOf(again)).toBe('200 replayed');
    expect(again.json['userId']).toBe(each.principal);
    expect(await effectsOn(servers, each)).toBe(1);
  }
  expect((await servers.redis.entries()).map(({ key }) => key)).toEqual([
    'test:1:idem:%C3%BC%7C%253A%2A%7B%7D:%253A%22%2F',
    'test:1:idem:t1%3Aa:b',
    'test:1:idem:t1:a%3Ab',
  ]);
});

test('two tenants with the same key have two effects, and neither sees the other (C22)', async () => {
  const other = { ...(await newRequest(servers)), key: request.key };
  for (const each of [request, other]) {
    expect(kindOf(await send(s.spend, each))).toBe('200 fresh');
    const again = await send(s.spend, each);
    expect([kindOf(again), again.json['userId']]).toEqual(['200 replayed', each.principal]);
    expect(await effectsOn(servers, each)).toBe(1);
  }
});

describe('a retention below a second (C44)', () => {
  test('a short retention is kept to the millisecond, and the marker answers beyond it', async () => {
    s = spender(servers, { BACKSTOP_RETENTION_MS: '500' });
    await send(s.spend, request);
    const [entry] = await servers.redis.entries();
    const [marker] = await servers.db.sql<{ expires: string }>(
      `SELECT floor(extract(epoch FROM created_at) * 1000) + 500 AS expires
         FROM player_mutation_idempotency WHERE user_id = $1`,
      [request.principal],
    );
    // Gone already only if this machine slept for half a second.
    expect([undefined, Number(marker?.expires)]).toContain(entry?.expiresAtMs);
    await eventually(async () => (await servers.redis.entries()).length === 0, 'expired');
    expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test.each(['0', '0.5', '-500', '500ms'])('a retention of %s is refused at start', (value) => {
    const environment = { DATABASE_URL: servers.db.apiUrl, BACKSTOP_RETENTION_MS: value };
    expect(() => createService(environment)).toThrow(ConfigError);
    expect(() => createService(environment)).toThrow('BACKSTOP_RETENTION_MS');
  });
});
