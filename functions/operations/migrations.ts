import { migrate } from '../../shared/postgres/index.ts';

/** The deployed package keeps the folders of the repository, so that the files are found there too. */
const root = `${import.meta.dirname}/../..`;

/**
 * The library's migrations, then this service's: a `players` table has its grants from roles that
 * the library makes.
 *
 * @returns the names of the migrations that were applied now.
 */
export async function migrateAll(
  databaseUrl: string,
  log: (line: string) => void = () => {},
): Promise<string[]> {
  const library = { directory: `${root}/shared/postgres/migrations`, log };
  const own = {
    directory: `${root}/functions/migrations`,
    migrationsTable: 'service_migrations',
    log,
  };
  return [...(await migrate(databaseUrl, library)), ...(await migrate(databaseUrl, own))];
}
