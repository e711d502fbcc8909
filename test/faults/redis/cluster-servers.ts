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
} from './servers.ts';

export interface ClusterServers {
  readonly db: TestDatabase;
  readonly cluster: RedisCluster;
}

/** Call it at the head of a file: starts the servers, and mends them between tests. */
export function useCluster(): ClusterServers {
  const servers = {} as { -readonly [Part in keyof ClusterServers]: ClusterServers[Part] };
  beforeAll(async () => {
    [servers.cluster, servers.db] = await Promise.all([startRedisCluster(), createTestDatabase()]);
  });
  afterEach(() => servers.cluster.mend());
  afterAll(() => Promise.all([servers.cluster.close(), servers.db.drop()]));
  return servers;
}

export const nameOf = ({ principal, key }: SpendRequest) => `${ENTRIES}${principal}:${key}`;

/** One execution environment that has connected to nothing yet. */
export function coldClusterSpender(
  { db, cluster }: ClusterServers,
  environment: Record<string, string> = {},
): Spender {
  const service = testService(
    { apiUrl: db.apiUrl },
    { REDIS_URL: cluster.url, BACKSTOP_REDIS_MODE: 'cluster', ...environment },
  );
  const failures = vi.spyOn(service.meter, 'cacheFailure');
  return { service, spend: service.mutation(spendCoins), failures };
}

/** As `coldClusterSpender`, and connected to Postgres and to every node. */
export async function warmClusterSpender(
  servers: ClusterServers,
  environment: Record<string, string> = PATIENT,
): Promise<Spender> {
  const s = coldClusterSpender(servers, environment);
  for (const name of ['postgres', 'redis'] as const) {
    await eventually(async () => {
      const isUp = s.service.dependencies[name]?.().then(() => true);
      return isUp?.catch(() => false);
    }, `${name} up`);
  }
  for (const node of servers.cluster.nodes) {
    await eventually(async () => {
      const request = await requestOn(servers, node);
      if (kindOf(await send(s.spend, request)) !== '200 fresh') throw new Error('not fresh');
      return (await servers.cluster.read(nameOf(request))) !== null;
    }, 'a node in use');
  }
  s.failures.mockClear();
  return s;
}

/** A request whose key is that node's. */
export async function requestOn(servers: ClusterServers, node: ClusterNode): Promise<SpendRequest> {
  const base = await newRequest(servers);
  return eventually(async () => {
    const next = { ...base, key: newKey() };
    return (await servers.cluster.ownerOf(nameOf(next))) === node && next;
  }, 'a key of that node');
}

/** The client alone, with the time of a command as it usually is. */
export function openCache(servers: ClusterServers) {
  const redis = createRedis({
    url: servers.cluster.url,
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
