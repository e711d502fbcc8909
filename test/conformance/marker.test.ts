import { inject } from 'vitest';
import { markerStore, type Tx } from '../../shared/postgres/index.ts';
import { redisClaimCache } from '../../shared/redis/index.ts';
import { TEST_NAMESPACE } from '../support/redis.ts';
import type { StoreHarness } from './harness.ts';
import { openPostgresStore } from './postgres.ts';
import { conformanceSuite } from './suite.ts';

for (const pipeline of [true, false]) {
  for (const redis of ['on', 'off', 'dies'] as const) {
    if (redis !== 'off' && inject('redisUrl') === '') continue;
    conformanceSuite(markerHarness(pipeline), redis);
    if (redis !== 'off') conformanceSuite(markerHarness(pipeline), redis, 'parallel');
  }
}

if (inject('redisUrl') !== '') conformanceSuite(markerHarness(true, 'cluster'), 'on');

function markerHarness(
  pipeline: boolean,
  redis: 'single' | 'cluster' = 'single',
): StoreHarness<Tx> {
  const isCluster = redis === 'cluster';
  return {
    name: `marker store, pipelining ${pipeline ? 'on' : 'off'}${isCluster ? ', a cluster' : ''}`,
    traits: { replaysWithoutRedis: false, identity: 'key', duplicateInFlight: 'waits' },
    open: (redisMode) =>
      openPostgresStore(
        {
          pipeline,
          redis,
          store: (database) => markerStore({ database, retentionMs: 3_600_000 }),
          cache: (redis) =>
            redisClaimCache({
              redis,
              namespace: TEST_NAMESPACE,
              connectBudgetMs: 20_000,
              coolDownMs: 50,
              onFailure: () => {},
            }),
          claims: 'SELECT FROM player_mutation_idempotency WHERE user_id = $1',
        },
        redisMode,
      ),
  };
}
