import { NO_FAST_PATH, type RecordTx, recordStore } from '../../shared/index.ts';
import { openPostgresRig } from './postgres-rig.ts';
import type { Rig } from './rig.ts';
import { conformanceSuite } from './suite.ts';

for (const pipeline of [true, false]) {
  for (const redis of ['off'] as const) {
    conformanceSuite(recordRig(pipeline), redis);
  }
}

function recordRig(pipeline: boolean): Rig<RecordTx> {
  return {
    name: `record store, pipelining ${pipeline ? 'on' : 'off'}`,
    traits: {
      replaysWithoutRedis: true,
      identity: 'endpoint and key',
      duplicateInFlight: 'is refused',
    },
    open: (redisMode) =>
      openPostgresRig(
        {
          pipeline,
          store: (database) => recordStore({ database, retentionMs: 172_800_000, leaseMs: 30_000 }),
          fastPath: () => NO_FAST_PATH,
          claims: 'SELECT FROM idempotency_records WHERE account_id = $1',
        },
        redisMode,
      ),
  };
}
