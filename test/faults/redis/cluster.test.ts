/** A cluster in front: its redirects are followed, and whatever it loses costs a budget and no more. */
import { beforeEach, describe, expect, test } from 'vitest';
import { Problem } from '../../../shared/index.ts';
import type { ClusterNode } from '../../support/redis-cluster.ts';
import { newKey, send } from '../../support/requests.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';
import {
  coldClusterSpender,
  mutationOf,
  nameOf,
  openCache,
  requestOn,
  useCluster,
  warmClusterSpender,
} from './cluster-servers.ts';
import {
  countKinds,
  effectsOn,
  handlerEndingWith,
  holdPlayer,
  kindOf,
  newRequest,
  PATIENT,
  type Spender,
  type SpendRequest,
} from './servers.ts';

const servers = useCluster();
let request: SpendRequest;
beforeEach(async () => {
  request = await newRequest(servers);
});

const stale = (of: SpendRequest) => ({ ...of, headers: { 'if-match': '"9"' } });

/** Spends, and then throws. */
const failing = ({ service }: Spender) =>
  handlerEndingWith(service, async () => {
    throw new Problem('NOT_FOUND', 'Thrown by the test.');
  });

/** Hands the slot of this request to another node, which the client has not been told. */
async function moveSlot(of: SpendRequest): Promise<ClusterNode> {
  const to = servers.cluster.otherThan(await servers.cluster.ownerOf(nameOf(of)));
  await servers.cluster.move(nameOf(of), to);
  return to;
}

const stateOf = async (of: SpendRequest): Promise<string | undefined> => {
  const text = await servers.cluster.read(nameOf(of));
  return text === null ? undefined : JSON.parse(text).state;
};

test('a key on every node has one effect, and its answer again', async () => {
  const s = coldClusterSpender(servers, PATIENT);
  for (const node of servers.cluster.nodes) {
    const each = await requestOn(servers, node);
    expect(kindOf(await send(s.spend, each))).toBe('200 fresh');
    expect(kindOf(await send(s.spend, each))).toBe('200 replayed');
    expect(await effectsOn(servers, each)).toBe(1);
  }
  expect(s.failures).not.toHaveBeenCalled();
});

test.each([0, 1, 2])('50 cold requests on node %i have one effect (C16)', async (n) => {
  const s = coldClusterSpender(servers, PATIENT);
  request = await requestOn(servers, servers.cluster.nodes[n] as ClusterNode);
  const answers = await Promise.all(Array.from({ length: 50 }, () => send(s.spend, request)));
  const { '200 fresh': fresh, ...others } = countKinds(answers);
  expect(fresh).toBe(1);
  expect(Object.keys(others).filter((kind) => !/^409 A|^200 replayed/.test(kind))).toEqual([]);
  expect(await effectsOn(servers, request)).toBe(1);
  expect(s.failures).not.toHaveBeenCalled();
});

test('a release declares its one key, so that it goes to the node that has it (C41)', async () => {
  const s = await warmClusterSpender(servers);
  for (const node of servers.cluster.nodes) {
    const each = await requestOn(servers, node);
    expect(kindOf(await send(s.spend, stale(each)))).toBe('412 VERSION_MISMATCH');
    expect(await stateOf(each)).toBeUndefined();
  }
  expect(s.failures).not.toHaveBeenCalled();
});

describe('a MOVED is followed (C42)', () => {
  test('a claim follows MOVED, and so does the publish after it', async () => {
    const s = await warmClusterSpender(servers);
    await moveSlot(request);
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(kindOf(await send(s.spend, request))).toBe('200 replayed');
    expect([await effectsOn(servers, request), await stateOf(request)]).toEqual([1, 'completed']);
    expect(s.failures).not.toHaveBeenCalled();
  });

  test('a replay follows MOVED', async () => {
    const s = await warmClusterSpender(servers);
    await send(s.spend, request);
    await moveSlot(request);
    expect(kindOf(await send(s.spend, request))).toBe('200 replayed');
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test.each([
    ['a publish', '200 fresh', 'completed'],
    ['a release', '404 NOT_FOUND', undefined],
  ])('%s follows MOVED when the slot moves during the work', async (_what, kind, state) => {
    const s = await warmClusterSpender(servers);
    const letGo = await holdPlayer(servers, request);
    const handler = kind === '200 fresh' ? s.spend : failing(s);
    const answer = send(handler, request);
    await seenBlocked(servers.db);
    expect(await stateOf(request)).toBe('pending');
    await moveSlot(request);
    await letGo();
    expect(kindOf(await answer)).toBe(kind);
    expect(await stateOf(request)).toBe(state);
    expect(s.failures).not.toHaveBeenCalled();
  });
});

test('an ASK is followed while a slot is on its way (C42)', async () => {
  const s = await warmClusterSpender(servers);
  const from = await servers.cluster.ownerOf(nameOf(request));
  const to = servers.cluster.otherThan(from);
  await servers.cluster.beginMove(nameOf(request), to);
  expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
  expect(kindOf(await send(s.spend, request))).toBe('200 replayed');
  expect(await from.raw.exists(nameOf(request)).catch(String)).toContain('ASK');
  await servers.cluster.move(nameOf(request), to);
  expect(kindOf(await send(s.spend, request))).toBe('200 replayed');
  expect(await effectsOn(servers, request)).toBe(1);
  expect(s.failures).not.toHaveBeenCalled();
});

test('a CLUSTERDOWN is a miss at once', async () => {
  const s = await warmClusterSpender(servers, { ...PATIENT, BACKSTOP_REDIS_COOL_DOWN_MS: '60000' });
  const giveBack = await servers.cluster.loseSlot('somewhere else');
  const startMs = performance.now();
  const kinds = [kindOf(await send(s.spend, request)), kindOf(await send(s.spend, request))];
  const tookMs = performance.now() - startMs;
  await giveBack();
  expect(kinds).toEqual(['200 fresh', '409 ALREADY_EXISTS']);
  // Four commands, and none of them waited for its time-out.
  expect(tookMs).toBeLessThan(Number(PATIENT.BACKSTOP_REDIS_COMMAND_TIMEOUT_MS));
  expect(s.failures.mock.calls).toEqual([['claim'], ['publish'], ['claim'], ['release']]);
});

test('a node that dies during the work takes the answer with it, and nothing else', async () => {
  const s = await warmClusterSpender(servers);
  const letGo = await holdPlayer(servers, request);
  const answer = send(s.spend, request);
  await seenBlocked(servers.db);
  const dying = await servers.cluster.ownerOf(nameOf(request));
  const elsewhere = await requestOn(servers, servers.cluster.otherThan(dying));
  await dying.crash();
  expect(kindOf(await send(s.spend, elsewhere))).toBe('200 fresh');
  expect(kindOf(await send(s.spend, elsewhere))).toBe('200 replayed');
  await letGo();
  expect(kindOf(await answer)).toBe('200 fresh');
  expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
  expect(await effectsOn(servers, request)).toBe(1);
  await servers.cluster.mend();
  await cacheBack(s);
});

describe('the whole cluster fails', () => {
  const COOL_LONG = { BACKSTOP_REDIS_COOL_DOWN_MS: '60000' };

  test('a frozen cluster costs 100 ms a command, and then nothing for a while', async () => {
    const s = await warmClusterSpender(servers);
    const short = await warmClusterSpender(servers, COOL_LONG);
    for (const node of servers.cluster.nodes) node.freeze();
    const startMs = performance.now();
    expect(kindOf(await send(short.spend, request))).toBe('200 fresh');
    const tookMs = performance.now() - startMs;
    expect(tookMs).toBeGreaterThan(190);
    expect(tookMs).toBeLessThan(10_000);
    expect(kindOf(await send(short.spend, request))).toBe('409 ALREADY_EXISTS');
    expect(short.failures.mock.calls).toEqual([['claim'], ['publish'], ['claim'], ['release']]);
    expect(kindOf(await send(short.spend, { ...request, key: newKey() }))).toBe('200 fresh');
    expect(short.failures).toHaveBeenCalledTimes(4);
    expect(s.failures).not.toHaveBeenCalled();
  });

  test('a frozen cluster costs 250 ms to connect on a cold start', async () => {
    const s = coldClusterSpender(servers, COOL_LONG);
    await s.service.dependencies['postgres']?.();
    for (const node of servers.cluster.nodes) node.freeze();
    const startMs = performance.now();
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(performance.now() - startMs).toBeLessThan(10_000);
    expect(s.failures.mock.calls).toEqual([['claim'], ['publish']]);
  });

  test('a claim is not kept for a dead cluster until it is back', async () => {
    const { redis, failures, path } = openCache(servers);
    const request = await requestOn(servers, servers.cluster.nodes[0]);
    await path.claim(mutationOf(await requestOn(servers, servers.cluster.nodes[0]))); // Connected.
    await Promise.all(servers.cluster.nodes.map((node) => node.crash()));
    await eventually(async () => redis.status === 'reconnecting', 'the loss noticed');
    expect((await path.claim(mutationOf(request))).lookup).toEqual({ kind: 'unknown' });
    expect(failures).toEqual(['claim']);
    await servers.cluster.mend();
    await eventually(async () => redis.status === 'ready', 'connected again');
    await redis.ping();
    expect(await servers.cluster.read(nameOf(request))).toBeNull();
  });

  test('the store decides while the cluster is dead, and the cache is back when it is', async () => {
    const s = await warmClusterSpender(servers, { BACKSTOP_REDIS_COOL_DOWN_MS: '300' });
    await Promise.all(servers.cluster.nodes.map((node) => node.crash()));
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
    expect(await effectsOn(servers, request)).toBe(1);
    await servers.cluster.mend();
    await cacheBack(s);
  });
});

/** Until a request is replayed again: a new one each time. */
async function cacheBack({ spend }: Spender): Promise<void> {
  await eventually(async () => {
    const probe = await newRequest(servers);
    expect(kindOf(await send(spend, probe))).toBe('200 fresh');
    const again = kindOf(await send(spend, probe));
    expect(['200 replayed', '409 ALREADY_EXISTS', '409 ABORTED']).toContain(again);
    expect(await effectsOn(servers, probe)).toBe(1);
    return again === '200 replayed';
  }, 'the cache back');
}
