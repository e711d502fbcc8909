import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { inject, onTestFinished } from 'vitest';
import { TEMPLATE, urlOf } from './urls.ts';

export interface TestDatabase {
  /** As the superuser. */
  readonly adminUrl: string;
  readonly apiUrl: string;
  readonly purgeUrl: string;
  /** Runs SQL as the superuser, outside every transaction of the product's. */
  sql<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    text: string,
    values?: unknown[],
  ): Promise<Row[]>;
  drop(): Promise<void>;
}

/** A database of the caller's own, migrated. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const serverUrl = inject('adminUrl');
  const database = `backstop_test_${randomUUID().replaceAll('-', '')}`;
  await runAs(serverUrl, `CREATE DATABASE ${database} TEMPLATE ${TEMPLATE}`);
  const adminUrl = urlOf(serverUrl, { database });
  const pool = new pg.Pool({ connectionString: adminUrl, max: 4, allowExitOnIdle: true });
  pool.on('error', () => {});
  return {
    adminUrl,
    apiUrl: urlOf(adminUrl, { role: 'backstop_api' }),
    purgeUrl: urlOf(adminUrl, { role: 'backstop_purge' }),
    sql: async (text, values) => (await pool.query(text, values)).rows as never,
    drop: async () => {
      await pool.end();
      await runAs(serverUrl, `DROP DATABASE ${database} WITH (FORCE)`);
    },
  };
}

async function runAs(url: string, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}

/** A session of the test's own, closed when the test ends. */
export async function openSession(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'test-session' });
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end().catch(() => {}));
  return client;
}

export interface Player {
  readonly coins: number;
  readonly version: number;
}

export async function seedPlayer(db: TestDatabase, userId: string, coins = 1000): Promise<void> {
  await db.sql('INSERT INTO players (user_id, coins) VALUES ($1, $2)', [userId, coins]);
}

export async function playerOf(db: TestDatabase, userId: string): Promise<Player> {
  const [row] = await db.sql<{ coins: string; data_version: string }>(
    'SELECT coins, data_version FROM players WHERE user_id = $1',
    [userId],
  );
  return { coins: Number(row?.coins), version: Number(row?.data_version) };
}

export async function markersOf(db: TestDatabase, userId: string): Promise<string[]> {
  const rows = await db.sql<{ request_id: string }>(
    'SELECT request_id FROM player_mutation_idempotency WHERE user_id = $1 ORDER BY 1',
    [userId],
  );
  return rows.map((row) => row.request_id);
}
