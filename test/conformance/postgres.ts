/** What the harnesses of the stores in Postgres have in common. */
import type { Cache, Store } from '../../shared/index.ts';
import { createDatabase, type Database, type Tx } from '../../shared/postgres/index.ts';
import type { RedisClient } from '../../shared/redis/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { seenBlocked } from '../support/waiting.ts';
import type { OpenStore, RedisMode } from './harness.ts';
import { openHarnessRedis } from './redis.ts';

export interface PostgresPlan<Handle extends Tx> {
  readonly pipeline: boolean;
  store(database: Database): Store<Handle>;
  cache(redis: RedisClient): Cache;
  readonly redis?: 'single' | 'cluster';
  /** Selects the claims of the principal $1. */
  readonly claims: string;
}

export async function openPostgresStore<Handle extends Tx>(
  plan: PostgresPlan<Handle>,
  redisMode: RedisMode,
): Promise<OpenStore<Handle>> {
  const db = await createTestDatabase();
  await db.sql('CREATE TABLE effects (principal text NOT NULL)');
  await db.sql('GRANT INSERT ON effects TO backstop_api');
  const database = createDatabase({
    connectionString: db.apiUrl,
    max: 10,
    pipeline: plan.pipeline,
    connectTimeoutMs: 20_000,
    onIdleError: () => {},
  });
  const redis = await openHarnessRedis(redisMode, plan.cache, plan.redis);
  return {
    store: plan.store(database),
    cache: redis.cache,
    killRedis: redis.killRedis,
    work: (principal, respond) => async (tx) => {
      await tx.query('INSERT INTO effects VALUES ($1)', [principal]);
      return respond();
    },
    effects: (principal) => count(db, 'SELECT FROM effects WHERE principal = $1', principal),
    claims: (principal) => count(db, plan.claims, principal),
    duplicateArrived: () => seenBlocked(db),
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
