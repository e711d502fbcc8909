import { existsSync } from 'node:fs';
import { runner } from 'node-pg-migrate';

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
  const applied = await runner({
    databaseUrl,
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
}

export interface MigrateOptions {
  /** The folder of the `.sql` files, where a bundler has moved them. */
  readonly directory?: string;
  readonly log?: (line: string) => void;
}

function migrationsDirectory(): string {
  const directory = `${import.meta.dirname}/migrations`;
  if (existsSync(directory)) return directory;
  throw new Error(
    `migrate: there is no folder ${directory}; pass { directory } with the .sql files`,
  );
}
