import { Client, escapeIdentifier } from 'pg';
import { migrateAll } from '../../functions/operations/migrations.ts';
import type { Service } from './services.ts';

/** The same database for the API, for the purge, and for the one who migrates. */
export interface DatabaseUrls {
  readonly api: string;
  readonly purge: string;
  readonly admin: string;
}

const DATABASE = 'backstop';
const SEEDED_PLAYERS = ['alice', 'bob'];
export const SEEDED_COINS = 10_000;
/** API Gateway answers 503 after 30 s by itself, so nothing local need run longer either. */
const TIMEOUT = '30s';

/**
 * Creates the database where Postgres is ours, brings it to this release's schema and seeds two
 * players. Safe to run again: what is there already stays as it is.
 */
export async function prepareDatabase(
  postgres: Service,
  log: (line: string) => void,
): Promise<DatabaseUrls> {
  if (postgres.url === undefined) throw new Error('no PostgreSQL');
  const urls =
    postgres.from === 'local'
      ? await createDatabase(postgres.url)
      : { api: postgres.url, purge: postgres.url, admin: postgres.url };
  await migrateAll(urls.admin);
  await withClient(urls.admin, seedPlayers);
  if (postgres.from === 'environment') {
    await withClient(postgres.url, (client) => limitOwnRole(client, log));
  }
  return urls;
}

async function createDatabase(superuserUrl: string): Promise<DatabaseUrls> {
  await withClient(superuserUrl, (client) => client.query(`CREATE DATABASE ${DATABASE}`));
  const as = (user: string) => {
    const url = new URL(superuserUrl);
    url.username = user;
    url.pathname = DATABASE;
    return url.href;
  };
  return { api: as('backstop_api'), purge: as('backstop_purge'), admin: as('postgres') };
}

async function seedPlayers(client: Client): Promise<void> {
  await client.query(
    `INSERT INTO players (user_id, coins) SELECT name, $2 FROM unnest($1::text[]) AS name
     ON CONFLICT DO NOTHING`,
    [SEEDED_PLAYERS, SEEDED_COINS],
  );
}

/**
 * The service refuses a role without time limits. The developer's own role gets them, in this one
 * database alone, and only those that it lacks.
 */
async function limitOwnRole(client: Client, log: (line: string) => void): Promise<void> {
  const { rows } = await client.query<{ database: string; user: string; unlimited: string[] }>(
    `SELECT current_database() AS database, current_user AS user,
       array(SELECT name FROM pg_settings WHERE setting = '0' AND name IN
         ('statement_timeout', 'idle_in_transaction_session_timeout')) AS unlimited`,
  );
  const { database = '', user, unlimited = [] } = rows[0] ?? {};
  for (const name of unlimited) {
    const where = `CURRENT_USER IN DATABASE ${escapeIdentifier(database)}`;
    await client.query(`ALTER ROLE ${where} SET ${name} = '${TIMEOUT}'`);
  }
  if (unlimited.length === 0) return;
  log(`set ${unlimited.join(' and ')} to ${TIMEOUT} for role ${user} in database ${database}`);
}

async function withClient<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 60_000 });
  // The connection may break between two queries as well; the next query then says so.
  client.on('error', () => {});
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
