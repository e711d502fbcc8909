/** What a cluster still does after its command was given up, and what a lost connection to one node costs. */
import { randomUUID } from 'node:crypto';
import type { Cluster } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
import type { Mutation } from '../../../shared/idempotency/contract.ts';
import { createRedis, redisFastPath } from '../../../shared/index.ts';
import { type FaultProxy, startFaultProxy } from '../../support/fault-proxy.ts';
import type { ClusterNode } from '../../support/redis-cluster.ts';
import { send } from '../../support/requests.ts';
import { eventually } from '../../support/waiting.ts';
import { clusterRig, nameOf, requestOn, warmSpender } from './cluster-rig.ts';
import { effectsOn, kindOf, type SpendRequest } from './rig.ts';

const rig = clusterRig();

/** Puts a fault proxy before one node, for whoever asks the cluster where it is. */
async function interpose(node: ClusterNode): Promise<FaultProxy> {
  const proxy = await startFaultProxy(node.url);
  const announce = async (port: string) => {
    await node.raw.config('SET', 'cluster-announce-port', port);
    const seen = port === '0' ? new URL(node.url).port : port;
    for (const { raw } of rig.cluster.nodes) {
      await eventually(
        async () => String(await raw.cluster('NODES')).includes(`127.0.0.1:${seen}@`),
        'the port known',
      );
    }
  };
  await announce(new URL(proxy.url).port);
  onTestFinished(async () => {
    await announce('0');
    await proxy.close();
  });
  return proxy;
}

test('a publish whose connection is lost is said once more, on the next one', async () => {
  const node = rig.cluster.nodes[1];
  const proxy = await interpose(node);
  const s = await warmSpender(rig);
  const request = await requestOn(rig, node);
  const lost = proxy.dropBefore('completed');
  expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
  await lost;
  expect(s.failures).not.toHaveBeenCalled();
  expect(kindOf(await send(s.spend, request))).toBe('200 replayed');
  expect(await effectsOn(rig, request)).toBe(1);
});

test('a claim whose answer is lost is not said again; what it left is released', async () => {
  const node = rig.cluster.nodes[1];
  const proxy = await interpose(node);
  const s = await warmSpender(rig);
  const request = await requestOn(rig, node);
  const claims = proxy.count('pending');
  const lost = proxy.dropAfter('pending');
  const late = { ...request, headers: { 'if-match': '"9"' } };
  expect(kindOf(await send(s.spend, late))).toBe('412 VERSION_MISMATCH');
  await lost;
  expect(s.failures.mock.calls).toEqual([['claim']]);
  // One claim, and one release that names it.
  expect([claims(), await rig.cluster.read(nameOf(request))]).toEqual([2, null]);
});

/** The client alone, with the time of a command as it usually is. */
function openPath() {
  const redis = createRedis({
    url: rig.cluster.url,
    mode: 'cluster',
    commandTimeoutMs: 100,
    onError: () => {},
  }) as Cluster;
  onTestFinished(() => redis.disconnect());
  const failures: string[] = [];
  const path = redisFastPath({
    redis,
    connectBudgetMs: 1000,
    coolDownMs: 1000,
    onFailure: (step) => failures.push(step),
  });
  return { redis, failures, path };
}

const mutationOf = ({ principal, key }: SpendRequest): Mutation => ({
  principal,
  key,
  endpoint: 'POST /late',
  fingerprint: '1:late',
  token: randomUUID(),
  deadlineMs: Date.now() + 10_000,
});

test('a redirect that comes after its claim was given up and released leaves no pending entry', async () => {
  const [from, to] = rig.cluster.nodes;
  const { redis, failures, path } = openPath();
  const request = await requestOn(rig, from);
  const mutation = mutationOf(request);
  await path.claim(mutationOf(await requestOn(rig, from))); // Connected.
  await rig.cluster.move(nameOf(request), to);
  from.freeze();
  expect(await path.claim(mutation)).toEqual({ kind: 'unknown' });
  // As the redirect of another command with this slot would tell the client.
  const slot = await to.raw.cluster('KEYSLOT', nameOf(request));
  redis.slots[slot] = [new URL(to.url).host];
  await path.release(mutation);
  expect(failures).toEqual(['claim']);
  from.thaw();
  // Each connection answers in order: what was to come on these has come.
  for (const { url } of [from, to]) {
    const { port } = new URL(url);
    const node = redis.nodes().find(({ options }) => String(options.port) === port);
    await node?.ping();
  }
  expect(await rig.cluster.read(nameOf(request))).toBeNull();
});

test('a claim that finds no cluster is not kept for when there is one', async () => {
  const { redis, failures, path } = openPath();
  const request = await requestOn(rig, rig.cluster.nodes[0]);
  await path.claim(mutationOf(await requestOn(rig, rig.cluster.nodes[0]))); // Connected.
  await Promise.all(rig.cluster.nodes.map((node) => node.crash()));
  await eventually(async () => redis.status === 'reconnecting', 'the loss noticed');
  expect(await path.claim(mutationOf(request))).toEqual({ kind: 'unknown' });
  expect(failures).toEqual(['claim']);
  await rig.cluster.mend();
  await eventually(async () => redis.status === 'ready', 'connected again');
  await redis.ping();
  expect(await rig.cluster.read(nameOf(request))).toBeNull();
});
