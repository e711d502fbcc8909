import { inject } from 'vitest';
import { type RecordTx, recordStore } from '../../shared/postgres/index.ts';
import { redisResponseCache } from '../../shared/redis/index.ts';
import { TEST_NAMESPACE } from '../support/redis.ts';
import type { StoreHarness } from './harness.ts';
import { openPostgresStore } from './postgres.ts';
import { conformanceSuite } from './suite.ts';

for (const pipeline of [true, false]) {
  for (const redis of ['on', 'off', 'dies'] as const) {
    if (redis !== 'off' && inject('redisUrl') === '') continue;
    conformanceSuite(recordHarness(pipeline), redis);
    if (redis !== 'off' && pipeline) conformanceSuite(recordHarness(pipeline), redis, 'parallel');
  }
}

function recordHarness(pipeline: boolean): StoreHarness<RecordTx> {
  return {
    name: `record store, pipelining ${pipeline ? 'on' : 'off'}`,
    traits: {
      replaysWithoutRedis: true,
      identity: 'endpoint and key',
      duplicateInFlight: 'rejected',
    },
    open: (redisMode) =>
      openPostgresStore(
        {
          pipeline,
          store: (database) => recordStore({ database, retentionMs: 172_800_000, leaseMs: 30_000 }),
          cache: (redis) =>
            redisResponseCache({
              redis,
              namespace: TEST_NAMESPACE,
              store: 'record',
              isPerEndpoint: true,
              connectBudgetMs: 20_000,
              coolDownMs: 50,
              onFailure: () => {},
            }),
          claims: 'SELECT FROM idempotency_records WHERE account_id = $1',
        },
        redisMode,
      ),
  };
}
