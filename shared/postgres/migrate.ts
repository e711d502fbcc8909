import { existsSync } from 'node:fs';
import pg from 'pg';

export interface MigrateOptions {
  /**
   * The folder of the `.sql` files: the library's own where it is not said. Say it where a bundler
   * has moved those, and for migrations of your own.
   */
  readonly directory?: string;
  /** Where it is recorded which of them have run. Migrations of your own need a table of their own. */
  readonly migrationsTable?: string;
  /** Progress, and what the server warns of (roles that could not be made or altered). */
  readonly log?: (line: string) => void;
}

const OURS = 'backstop_migrations';
const OUR_FIRST = '0001_markers';

/**
 * Brings a database to this release's schema: numbered `.sql` files, each in a transaction with
 * the record of it. `migrate(url)` runs the library's; `migrate(url, { directory, migrationsTable })`
 * one's own, after those. Safe to run twice and concurrently (an advisory lock; the second waits).
 * Connect it to the database itself and not through a proxy: the lock is the session's.
 *
 * @returns the names of the migrations that were applied now.
 * @throws Error for a database whose migrations are not these; nothing was done then.
 */
export async function migrate(
  databaseUrl: string,
  { directory = ourDirectory(), migrationsTable = OURS, log = () => {} }: MigrateOptions = {},
): Promise<string[]> {
  if (migrationsTable === OURS && !existsSync(`${directory}/${OUR_FIRST}.sql`)) {
    throw new Error(
      `migrate: there is no ${OUR_FIRST}.sql in ${directory}; pass { directory } with the library's .sql files, or with your own and { migrationsTable } for them`,
    );
  }
  // Only whoever migrates loads it.
  const { runner } = await import('node-pg-migrate');
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on('error', () => {}); // Heard through its queries.
  // What a migration left out, and who must say what: it does not fail for it.
  client.on('notice', ({ severity, message }) => {
    if (severity === 'WARNING') log(`WARNING: ${message}`);
  });
  await client.connect();
  try {
    await refuseOldBookkeeping(client);
    const applied = await runner({
      dbClient: client,
      dir: directory,
      direction: 'up',
      count: Number.POSITIVE_INFINITY,
      migrationsTable,
      advisoryLockMode: 'wait',
      // An older release must not run against a newer schema's leftovers unnoticed.
      checkOrder: true,
      log,
    });
    return applied.map(({ name }) => name);
  } finally {
    await client.end();
  }
}

/** The first release had the tables of its reference service among the library's migrations. */
async function refuseOldBookkeeping(client: pg.Client): Promise<void> {
  const table = `public.${OURS}`;
  const found = await client.query<{ exists: boolean }>(
    `SELECT to_regclass('${table}') IS NOT NULL AS exists`,
  );
  if (!found.rows[0]?.exists) return;
  const { rowCount } = await client.query(`SELECT FROM ${table} WHERE name = '0001_tables'`);
  if (rowCount === 0) return;
  throw new Error(
    `migrate: this database was migrated by an earlier release (${OURS} lists 0001_tables), whose migrations this release does not continue, so nothing was changed: migrate an empty database and move your rows to it (docs/database.md), or go on with that release`,
  );
}

function ourDirectory(): string {
  return `${import.meta.dirname}/migrations`;
}
