import { existsSync } from 'node:fs';
import pg from 'pg';

/**
 * Brings a database to this release's schema: the numbered `.sql` files beside
 * this one, each in a transaction with the record of it. Safe to run twice and
 * concurrently (an advisory lock; the second waits). Connect it to the database
 * itself and not through a proxy: the lock is the session's.
 *
 * @returns the names of the migrations that were applied now.
 */
export async function migrate(
  databaseUrl: string,
  { directory = migrationsDirectory(), log = () => {} }: MigrateOptions = {},
): Promise<string[]> {
  // Here, so that who never migrates from their service need not install it.
  const { runner } = await import('node-pg-migrate');
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on('error', () => {}); // Heard through its queries.
  // What a migration left out, and who must say what: it does not fail for it.
  client.on('notice', ({ severity, message }) => {
    if (severity === 'WARNING') log(`WARNING: ${message}`);
  });
  await client.connect();
  try {
    const applied = await runner({
      dbClient: client,
      dir: directory,
      direction: 'up',
      count: Number.POSITIVE_INFINITY,
      migrationsTable: 'backstop_migrations',
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

export interface MigrateOptions {
  /** The folder of the `.sql` files, where a bundler has moved them. */
  readonly directory?: string;
  /** Progress, and what the server warns of (roles that could not be made or altered). */
  readonly log?: (line: string) => void;
}

function migrationsDirectory(): string {
  const directory = `${import.meta.dirname}/migrations`;
  if (existsSync(directory)) return directory;
  throw new Error(
    `migrate: there is no folder ${directory}; pass { directory } with the .sql files`,
  );
}
