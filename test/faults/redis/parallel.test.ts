/** `BACKSTOP_CACHE_MODE=parallel`: Redis and Postgres are asked at once, and Redis is heard first. */
import { beforeEach, expect, test } from 'vitest';
import { send } from '../../support/requests.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';
import {
  effectsOn,
  holdPlayer,
  kindOf,
  markersFor,
  newRequest,
  PATIENT,
  type Spender,
  type SpendRequest,
  sessionsOf,
  spender,
  useServers,
  warmSpender,
} from './servers.ts';

const servers = useServers({ ...PATIENT, BACKSTOP_CACHE_MODE: 'parallel', BACKSTOP_POOL_MAX: '1' });
let s: Spender;
let request: SpendRequest;
beforeEach(async () => {
  s = await warmSpender(servers);
  request = await newRequest(servers);
});

const sessions = () => sessionsOf(servers);

test('the work is done while Redis is still silent, and COMMIT waits for its answer', async () => {
  const commits = servers.postgresProxy.count('COMMIT\0');
  const held = servers.redisProxy.holdAnswer('"state":"pending"');
  const answer = send(s.spend, request);
  await held;
  await eventually(async () => {
    const [session] = await sessions();
    return session?.state === 'idle in transaction';
  }, 'the work done');
  expect([commits(), await effectsOn(servers, request)]).toEqual([0, 0]);
  await servers.redisProxy.pass();
  expect(kindOf(await answer)).toBe('200 fresh');
  expect([commits(), await effectsOn(servers, request)]).toEqual([1, 1]);
});

test('a replay leaves no transaction and no other connection behind', async () => {
  const fresh = await send(s.spend, request);
  const before = await sessions();
  const replay = await send(s.spend, request);
  expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
  expect(await sessions()).toEqual(before.map(({ pid }) => ({ pid, state: 'idle' })));
  expect(kindOf(await send(s.spend, { ...request, body: { amount: 11 } }))).toBe('422 KEY_REUSED');
  expect(await effectsOn(servers, request)).toBe(1);
  expect(s.failures).not.toHaveBeenCalled();
});

test('a duplicate in flight is refused at once, though its claim waits for the other', async () => {
  const other = await warmSpender(servers);
  const letGo = await holdPlayer(servers, request);
  const owner = send(s.spend, request);
  const [waiting] = await seenBlocked(servers.db);
  const busy = await send(other.spend, request);
  expect([kindOf(busy), busy.headers['retry-after']]).toEqual(['409 ABORTED', '2']);
  // While the claim that it waits for still stands.
  expect(await seenBlocked(servers.db)).toContainEqual(
    expect.objectContaining({ pid: waiting?.pid }),
  );
  // Its own entry stands: what the duplicate found was not its to release.
  expect((await servers.redis.entry()).json).toMatchObject({ state: 'pending' });
  await letGo();
  expect(kindOf(await owner)).toBe('200 fresh');
  expect(kindOf(await send(other.spend, request))).toBe('200 replayed');
  await eventually(async () => (await sessions()).every(({ state }) => state === 'idle'), 'idle');
  expect((await sessions()).some(({ pid }) => pid === waiting?.pid)).toBe(true);
  expect(await effectsOn(servers, request)).toBe(1);
  expect(await markersFor(servers, request)).toEqual([request.key]);
});

test('a pending entry whose owner has not begun is respected, and what the work did is undone', async () => {
  const held = servers.postgresProxy.holdAt('claim_marker');
  const owner = send(s.spend, request);
  await held;
  const other = await warmSpender({ ...servers, postgresProxy: directly() });
  expect(kindOf(await send(other.spend, request))).toBe('409 ABORTED');
  expect([await effectsOn(servers, request), await markersFor(servers, request)]).toEqual([0, []]);
  await servers.postgresProxy.pass();
  expect(kindOf(await owner)).toBe('200 fresh');
  expect(await effectsOn(servers, request)).toBe(1);
});

test('Postgres alone decides while Redis is in a black hole', async () => {
  s = await warmSpender(servers, { BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '100' });
  servers.redisProxy.blackHole();
  expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
  expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
  expect(await effectsOn(servers, request)).toBe(1);
});

test('a replay comes from Redis while Postgres is away, and a new request leaves nothing pending', async () => {
  const fresh = await send(s.spend, request);
  await servers.postgresProxy.refuse();
  // One that has lost its connection, and one that never gets any.
  for (const { spend } of [s, spender(servers)]) {
    const replay = await send(spend, request);
    expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
  }
  const next = await newRequest(servers);
  expect(kindOf(await send(s.spend, next))).toBe('503 UNAVAILABLE');
  expect((await servers.redis.entries()).map(({ json }) => json?.['state'])).toEqual(['completed']);
});

/** Past the proxy that holds another's claim. */
function directly() {
  return { ...servers.postgresProxy, url: servers.db.apiUrl };
}
