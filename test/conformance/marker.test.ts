import { inject } from 'vitest';
import { startRedis } from '../../infra/local/redis.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import {
  createDatabase,
  createRedis,
  type FastPath,
  markerStore,
  NO_FAST_PATH,
  redisFastPath,
  type Tx,
} from '../../shared/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { seenBlocked } from '../support/waiting.ts';
import type { OpenRig, RedisMode, Rig } from './rig.ts';
import { conformanceSuite } from './suite.ts';

for (const pipeline of [true, false]) {
  for (const redis of ['on', 'off', 'dies'] as const) {
    if (redis !== 'off' && inject('redisUrl') === '') continue;
    conformanceSuite(markerRig(pipeline), redis);
  }
}

function markerRig(pipeline: boolean): Rig<Tx> {
  return {
    name: `marker store, pipelining ${pipeline ? 'on' : 'off'}`,
    traits: { replaysWithoutRedis: false, identity: 'key', duplicateInFlight: 'waits' },
    open: (redis) => openMarkerRig(pipeline, redis),
  };
}

async function openMarkerRig(pipeline: boolean, redisMode: RedisMode): Promise<OpenRig<Tx>> {
  const db = await createTestDatabase();
  await db.sql('CREATE TABLE effects (principal text NOT NULL)');
  await db.sql('GRANT INSERT ON effects TO backstop_api');
  const database = createDatabase({
    connectionString: db.apiUrl,
    max: 10,
    pipeline,
    connectTimeoutMs: 2000,
    onIdleError: () => {},
  });
  const redis = await openRedis(redisMode);
  return {
    store: markerStore({ database, retentionMs: 3_600_000 }),
    fastPath: redis.fastPath,
    midway: redis.midway,
    work: (principal, respond) => async (tx) => {
      await tx.query('INSERT INTO effects VALUES ($1)', [principal]);
      return respond();
    },
    effects: (principal) => count(db, 'SELECT FROM effects WHERE principal = $1', principal),
    claims: (principal) =>
      count(db, 'SELECT FROM player_mutation_idempotency WHERE user_id = $1', principal),
    seenWaiting: () => seenBlocked(db),
    breakStore: () => allowConnections(db, false),
    mendStore: async () => {
      await allowConnections(db, true);
      await redis.mend();
    },
    close: async () => {
      await database.pool.end();
      await redis.close();
      await db.drop();
    },
  };
}

async function count(db: TestDatabase, text: string, principal: string): Promise<number> {
  return (await db.sql(text, [principal])).length;
}

/** The superuser of the tests still gets in: only the API's role is shut out. */
async function allowConnections(db: TestDatabase, isAllowed: boolean): Promise<void> {
  const [row] = await db.sql<{ name: string }>('SELECT current_database() AS name');
  await db.sql(`ALTER DATABASE ${row?.name} CONNECTION LIMIT ${isAllowed ? -1 : 0}`);
  if (isAllowed) return;
  await db.sql(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND usename = 'backstop_api'`,
  );
}

interface RigRedis {
  readonly fastPath: FastPath;
  midway(): Promise<void>;
  mend(): Promise<void>;
  close(): Promise<void>;
}

const nothing = async () => {};

async function openRedis(mode: RedisMode): Promise<RigRedis> {
  if (mode === 'off')
    return { fastPath: NO_FAST_PATH, midway: nothing, mend: nothing, close: nothing };
  if (mode === 'on') {
    const client = openFastPath(inject('redisUrl'));
    return { ...client, midway: nothing, mend: nothing };
  }
  const folder = await createRunFolder();
  const server = await startRedis({ runDir: folder.path });
  const client = openFastPath(server.url);
  return {
    fastPath: client.fastPath,
    midway: () => server.stop(),
    mend: async () => {
      await server.start();
      await client.settled();
    },
    close: async () => {
      await client.close();
      await server.close();
      await folder.remove();
    },
  };
}

function openFastPath(url: string) {
  const redis = createRedis({ url, commandTimeoutMs: 1000, onError: () => {} });
  const fastPath = redisFastPath({
    redis,
    connectBudgetMs: 2000,
    coolDownMs: 50,
    onFailure: () => {},
  });
  return {
    fastPath,
    /** Until the client has come back to a server that was started again. */
    settled: () =>
      redis.status === 'ready'
        ? nothing()
        : new Promise<void>((resolve) => redis.once('ready', () => resolve())),
    close: async () => redis.disconnect(),
  };
}
