/** What each file here needs: real Postgres, a Redis of its own, and a fault proxy before each. */
import type pg from 'pg';
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  type MockInstance,
  onTestFinished,
  vi,
} from 'vitest';
import * as z from 'zod/mini';
import { spendCoins } from '../../../functions/players/spend-coins.ts';
import type { Cache, HttpResponse } from '../../../shared/index.ts';
import type { Tx } from '../../../shared/postgres/transaction.ts';
import type { RedisClient } from '../../../shared/redis/client.ts';
import { redisClaimCache } from '../../../shared/redis/index.ts';
import type { Handler, Service } from '../../../shared/service/index.ts';
import {
  createTestDatabase,
  markersOf,
  openSession,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../../support/database.ts';
import { type FaultProxy, startFaultProxy } from '../../support/fault-proxy.ts';
import {
  ENTRIES,
  type PrivateRedis,
  startPrivateRedis,
  TEST_NAMESPACE,
} from '../../support/redis.ts';
import { type Answer, newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { type BlockedSession, eventually, seenBlocked } from '../../support/waiting.ts';

export const COINS = 1000;

export interface FaultServers {
  readonly db: TestDatabase;
  readonly redis: PrivateRedis;
  /** On the way of every service to Redis, and to Postgres. */
  readonly redisProxy: FaultProxy;
  readonly postgresProxy: FaultProxy;
  /** Of every service here. */
  readonly environment: Record<string, string>;
}

export { PATIENT } from '../../support/patience.ts';

/** Call it at the head of a file: starts the servers, and mends them between tests. */
export function useServers(environment: Record<string, string> = {}): FaultServers {
  const servers = { environment } as { -readonly [Part in keyof FaultServers]: FaultServers[Part] };
  beforeAll(async () => {
    [servers.db, servers.redis] = await Promise.all([createTestDatabase(), startPrivateRedis()]);
    servers.redisProxy = await startFaultProxy(servers.redis.url);
    servers.postgresProxy = await startFaultProxy(servers.db.apiUrl);
  });
  beforeEach(async () => {
    await servers.redis.raw.flushall();
  });
  afterEach(async () => {
    servers.redis.thaw();
    await Promise.all([
      servers.redisProxy.pass(),
      servers.postgresProxy.pass(),
      servers.redis.restart(),
    ]);
  });
  afterAll(async () => {
    await Promise.all([servers.redisProxy.close(), servers.postgresProxy.close()]);
    await Promise.all([servers.redis.close(), servers.db.drop()]);
  });
  return servers;
}

export interface Spender {
  readonly service: Service;
  /** The handler of spend-coins. */
  readonly spend: Handler;
  /** Told of each failure of L1, by its step. */
  readonly failures: MockInstance<(step: string) => void>;
}

/** One execution environment, with both proxies on its way. */
export function spender(servers: FaultServers, environment: Record<string, string> = {}): Spender {
  const service = testService(
    { apiUrl: servers.postgresProxy.url },
    { REDIS_URL: servers.redisProxy.url, ...servers.environment, ...environment },
  );
  const failures = vi.spyOn(service.meter, 'cacheFailure');
  return { service, spend: service.mutation(spendCoins), failures };
}

/** As `spender`, and its connections to both servers stand already. */
export async function warmSpender(servers: FaultServers, environment?: Record<string, string>) {
  const warm = spender(servers, environment);
  const { dependencies } = warm.service;
  for (const name of ['redis', 'postgres'] as const) {
    await eventually(async () => {
      const isUp = dependencies[name]?.().then(() => true);
      return isUp?.catch(() => false);
    }, `${name} up`);
  }
  // The first claim says a release with it: no fault is to injectFault that one.
  await eventually(async () => {
    warm.failures.mockClear();
    const { principal, ...request } = await newRequest(servers);
    await send(warm.spend, { principal, ...request });
    await servers.redis.raw.del(`${ENTRIES}${principal}:${request.key}`);
    return warm.failures.mock.calls.length === 0;
  }, 'a first claim');
  return warm;
}

export interface CacheAlone {
  readonly path: Cache;
  /** The steps that failed, in order. */
  readonly failures: readonly string[];
}

/** The cache alone on `redis`, which is closed when the test ends. */
export function claimCacheOn(redis: RedisClient): CacheAlone {
  onTestFinished(() => redis.disconnect());
  const failures: string[] = [];
  const path = redisClaimCache({
    redis,
    namespace: TEST_NAMESPACE,
    connectBudgetMs: 1000,
    coolDownMs: 1000,
    onFailure: (step) => failures.push(step),
  });
  return { path, failures };
}

/** What the services here have open at Postgres. */
export function sessionsOf({
  db,
}: Pick<FaultServers, 'db'>): Promise<{ pid: number; state: string }[]> {
  return db.sql(
    `SELECT pid, state FROM pg_stat_activity
      WHERE datname = current_database() AND usename = 'backstop_api'`,
  );
}

export interface SpendRequest {
  readonly principal: string;
  readonly key: string;
  readonly body: { readonly amount: number };
}

/** A new player with 1,000 coins, and a request to spend 10 of them. */
export async function newRequest(servers: Pick<FaultServers, 'db'>): Promise<SpendRequest> {
  const principal = newKey();
  await seedPlayer(servers.db, principal, COINS);
  return { principal, key: newKey(), body: { amount: 10 } };
}

/** How often the player was written: one version for each. */
export async function effectsOn(
  servers: Pick<FaultServers, 'db'>,
  { principal }: SpendRequest,
): Promise<number> {
  const { coins, version } = await playerOf(servers.db, principal);
  const effects = version - 1;
  if (COINS - coins !== 10 * effects) throw new Error(`${coins} coins after ${effects} effects`);
  return effects;
}

export const markersFor = (servers: Pick<FaultServers, 'db'>, { principal }: SpendRequest) =>
  markersOf(servers.db, principal);

/** Locks the player's row, so that a request stands still inside its transaction. */
export async function holdPlayer(
  servers: Pick<FaultServers, 'db'>,
  request: SpendRequest,
): Promise<() => Promise<void>> {
  const session = await openSession(servers.db.adminUrl);
  await session.query('BEGIN');
  await session.query('SELECT FROM players WHERE user_id = $1 FOR UPDATE', [request.principal]);
  return () => end(session);
}

/** Until one request waits for the marker of another, who stands still itself. */
export function seenAtMarker(servers: FaultServers): Promise<BlockedSession> {
  return eventually(async () => {
    const blocked = await seenBlocked(servers.db, 2);
    // The text may be older than the wait: one is a snapshot and the other is not.
    return blocked.find(
      ({ query, blockers }) =>
        query.includes('claim_marker') && blocked.some(({ pid }) => blockers.includes(pid)),
    );
  }, 'a claim that waits for another');
}

async function end(session: pg.Client): Promise<void> {
  await session.query('COMMIT');
}

/** A mutation that spends ten coins and ends as it is told to. */
export function handlerEndingWith(
  service: Service,
  ending: (tx: Tx) => Promise<HttpResponse>,
): Handler {
  return service.mutation({
    name: 'ending',
    body: z.looseObject({}),
    stateUrl: '/players/me',
    run: ({ principal, once }) =>
      once(async (tx) => {
        await tx.query(
          'UPDATE players SET coins = coins - 10, data_version = data_version + 1 WHERE user_id = $1',
          [principal],
        );
        return ending(tx);
      }),
  });
}

/** What an answer is, in one word: its problem code, else `fresh` or `replayed` with its status. */
export function kindOf(answer: Answer): string {
  if (answer.code !== undefined) return `${answer.status} ${answer.code}`;
  return `${answer.status} ${answer.headers['idempotency-replayed'] ? 'replayed' : 'fresh'}`;
}

export function countKinds(answers: readonly Answer[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const answer of answers) counts[kindOf(answer)] = (counts[kindOf(answer)] ?? 0) + 1;
  return counts;
}
