/** What each file here needs that is about a cluster: one of its own, and real Postgres. */
import { randomUUID } from 'node:crypto';
import type { Cluster } from 'ioredis';
import { afterAll, afterEach, beforeAll, vi } from 'vitest';
import { spendCoins } from '../../../functions/players/spend-coins.ts';
import type { Mutation } from '../../../shared/core/contract.ts';
import { createRedis } from '../../../shared/redis/index.ts';
import { createTestDatabase, type TestDatabase } from '../../support/database.ts';
import { ENTRIES } from '../../support/redis.ts';
import {
  type ClusterNode,
  type RedisCluster,
  startRedisCluster,
} from '../../support/redis-cluster.ts';
import { newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { eventually } from '../../support/waiting.ts';
import {
  claimCacheOn,
  kindOf,
  newRequest,
  PATIENT,
  type Spender,
  type SpendRequest,
} from './rig.ts';

export interface ClusterRig {
  readonly db: TestDatabase;
  readonly cluster: RedisCluster;
}

/** Call it at the head of a file: starts the servers, and mends them between tests. */
export function clusterRig(): ClusterRig {
  const rig = {} as { -readonly [Part in keyof ClusterRig]: ClusterRig[Part] };
  beforeAll(async () => {
    [rig.cluster, rig.db] = await Promise.all([startRedisCluster(), createTestDatabase()]);
  });
  afterEach(() => rig.cluster.mend());
  afterAll(() => Promise.all([rig.cluster.close(), rig.db.drop()]));
  return rig;
}

export const nameOf = ({ principal, key }: SpendRequest) => `${ENTRIES}${principal}:${key}`;

/** One execution environment that has connected to nothing yet. */
export function coldSpender(
  { db, cluster }: ClusterRig,
  environment: Record<string, string> = {},
): Spender {
  const service = testService(
    { apiUrl: db.apiUrl },
    { REDIS_URL: cluster.url, BACKSTOP_REDIS_MODE: 'cluster', ...environment },
  );
  const failures = vi.spyOn(service.meter, 'cacheFailure');
  return { service, spend: service.mutation(spendCoins), failures };
}

/** As `coldSpender`, and connected to Postgres and to every node. */
export async function warmSpender(
  rig: ClusterRig,
  environment: Record<string, string> = PATIENT,
): Promise<Spender> {
  const s = coldSpender(rig, environment);
  for (const name of ['postgres', 'redis'] as const) {
    await eventually(async () => {
      const isUp = s.service.dependencies[name]?.().then(() => true);
      return isUp?.catch(() => false);
    }, `${name} up`);
  }
  for (const node of rig.cluster.nodes) {
    await eventually(async () => {
      const request = await requestOn(rig, node);
      if (kindOf(await send(s.spend, request)) !== '200 fresh') throw new Error('not fresh');
      return (await rig.cluster.read(nameOf(request))) !== null;
    }, 'a node in use');
  }
  s.failures.mockClear();
  return s;
}

/** A request whose key is that node's. */
export async function requestOn(rig: ClusterRig, node: ClusterNode): Promise<SpendRequest> {
  const base = await newRequest(rig);
  return eventually(async () => {
    const next = { ...base, key: newKey() };
    return (await rig.cluster.ownerOf(nameOf(next))) === node && next;
  }, 'a key of that node');
}

/** The client alone, with the time of a command as it usually is. */
export function openPath(rig: ClusterRig) {
  const redis = createRedis({
    url: rig.cluster.url,
    mode: 'cluster',
    commandTimeoutMs: 100,
    onError: () => {},
  }) as Cluster;
  return { redis, ...claimCacheOn(redis) };
}

export const mutationOf = ({ principal, key }: SpendRequest): Mutation => ({
  principal,
  key,
  endpoint: 'POST /late',
  fingerprint: '1:late',
  token: randomUUID(),
  deadlineMs: Date.now() + 10_000,
});
