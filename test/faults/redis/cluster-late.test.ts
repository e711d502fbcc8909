/** What a cluster still does after its command was given up, and what a lost connection to one node costs. */
import type { Cluster } from 'ioredis';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type FaultProxy, startFaultProxy } from '../../support/fault-proxy.ts';
import type { ClusterNode } from '../../support/redis-cluster.ts';
import { send } from '../../support/requests.ts';
import { eventually } from '../../support/waiting.ts';
import {
  mutationOf,
  nameOf,
  openCache,
  requestOn,
  useCluster,
  warmClusterSpender,
} from './cluster-servers.ts';
import { effectsOn, kindOf } from './servers.ts';

const servers = useCluster();

/** A node that others are sent to through a fault proxy. */
let node: ClusterNode;
let proxy: FaultProxy;
beforeAll(async () => {
  node = servers.cluster.nodes[1];
  proxy = await startFaultProxy(node.url);
  const { port } = new URL(proxy.url);
  await node.raw.config('SET', 'cluster-announce-port', port);
  for (const { raw } of servers.cluster.nodes) {
    await eventually(
      async () => String(await raw.cluster('NODES')).includes(`127.0.0.1:${port}@`),
      'the port known',
    );
  }
});
afterEach(() => proxy.pass());
afterAll(() => proxy.close());

/** Until all that was to come on the connection to this port has come: it answers in order. */
async function heardFrom(redis: Cluster, url: string): Promise<void> {
  const { port } = new URL(url);
  await redis
    .nodes()
    .find(({ options }) => String(options.port) === port)
    ?.ping();
}

test('a publish whose connection is lost is sent once more, on the next one', async () => {
  const s = await warmClusterSpender(servers);
  const request = await requestOn(servers, node);
  const lost = proxy.dropBefore('completed');
  expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
  await lost;
  expect(s.failures).not.toHaveBeenCalled();
  expect(kindOf(await send(s.spend, request))).toBe('200 replayed');
  expect(await effectsOn(servers, request)).toBe(1);
});

test('a claim whose answer is lost is not sent again, and what it left is released', async () => {
  const s = await warmClusterSpender(servers);
  const request = await requestOn(servers, node);
  const claims = proxy.count('pending');
  const lost = proxy.dropAfter('pending');
  const late = { ...request, headers: { 'if-match': '"9"' } };
  expect(kindOf(await send(s.spend, late))).toBe('412 VERSION_MISMATCH');
  await lost;
  expect(s.failures.mock.calls).toEqual([['claim']]);
  // One claim, and one release that names it.
  expect([claims(), await servers.cluster.read(nameOf(request))]).toEqual([2, null]);
});

test('a redirect that comes after its claim was given up and released leaves no pending entry', async () => {
  const [from, , to] = servers.cluster.nodes;
  const { redis, failures, path } = openCache(servers);
  const request = await requestOn(servers, from);
  const mutation = mutationOf(request);
  await path.claim(mutationOf(await requestOn(servers, from))); // Connected.
  await servers.cluster.move(nameOf(request), to);
  from.freeze();
  const claim = await path.claim(mutation);
  expect(claim.lookup).toEqual({ kind: 'unknown' });
  // As the redirect of another command with this slot would tell the client.
  const slot = await to.raw.cluster('KEYSLOT', nameOf(request));
  redis.slots[slot] = [new URL(to.url).host];
  await claim.release();
  expect(failures).toEqual(['claim']);
  from.thaw();
  for (const { url } of [from, to]) await heardFrom(redis, url);
  expect(await servers.cluster.read(nameOf(request))).toBeNull();
});

test('a claim that a node keeps while it connects is not sent once it was given up', async () => {
  const { redis, failures, path } = openCache(servers);
  await path.claim(mutationOf(await requestOn(servers, node))); // Connected.
  proxy.reset();
  const connecting = proxy.holdAt('hello');
  const request = await requestOn(servers, node);
  expect((await path.claim(mutationOf(request))).lookup).toEqual({ kind: 'unknown' });
  await connecting;
  expect(failures).toEqual(['claim']);
  await proxy.pass();
  await heardFrom(redis, proxy.url);
  expect(await servers.cluster.read(nameOf(request))).toBeNull();
});

test('a release waits for a node that is just being connected to', async () => {
  const { failures, path } = openCache(servers);
  await path.claim(mutationOf(await requestOn(servers, node))); // Connected.
  const request = await requestOn(servers, node);
  const mutation = mutationOf(request);
  const lost = proxy.dropAfter('pending');
  const claim = await path.claim(mutation);
  expect(claim.lookup).toEqual({ kind: 'unknown' });
  await lost;
  expect(await servers.cluster.read(nameOf(request))).not.toBeNull();
  const connecting = proxy.holdAt('hello');
  const other = path.claim(mutationOf(await requestOn(servers, node)));
  await connecting;
  const released = claim.release();
  await proxy.pass();
  await Promise.all([released, other]);
  // On a busy machine the other claim may be given up as well.
  expect(failures).not.toContain('release');
  expect(await servers.cluster.read(nameOf(request))).toBeNull();
});
