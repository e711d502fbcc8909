/** Environment variables as they are handed from function to function. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The only place of infra/local that reads `process.env`. Everything else is handed what it needs,
 * so that a reader (and a test) sees which variables matter where.
 */
export function environment(): Environment {
  return process.env;
}

/**
 * What a server gets to see: nothing of the developer's own variables. A stray PGPORT, PGDATA or
 * LD_PRELOAD would otherwise change what runs, and LC_ALL=C keeps the log lines in the language
 * that we wait for.
 */
export function serverEnvironment(folder: string, path: string): Record<string, string> {
  return { PATH: path, HOME: folder, TMPDIR: folder, TZ: 'UTC', LC_ALL: 'C' };
}
