/** Environment variables as they are handed from function to function. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The only file of infra/local that reads `process.env`. Everything else is handed what it needs,
 * so that a reader (and a test) sees which variables matter where.
 */
export function environment(): Environment {
  return process.env;
}

/**
 * Takes PGSSLMODE, PGOPTIONS, PGPASSWORD and the like out of this process' environment, and so of its
 * children's. `pg` reads them from process.env by itself; they are about a server of the
 * developer's own, and keep clients away from one of ours, which has neither TLS nor passwords.
 */
export function forgetPostgresVariables(): void {
  for (const name of Object.keys(process.env)) {
    if (/^PG[A-Z]+$/.test(name)) delete process.env[name];
  }
}

/**
 * What a server gets to see: nothing of the developer's own variables. A stray PGPORT, PGDATA or
 * LD_PRELOAD would otherwise change what runs, and LC_ALL=C keeps the log lines in the language
 * that we wait for.
 */
export function serverEnvironment(folder: string, path: string): Record<string, string> {
  return { PATH: path, HOME: folder, TMPDIR: folder, TZ: 'UTC', LC_ALL: 'C' };
}
