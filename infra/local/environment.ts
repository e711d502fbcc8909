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
  for (const name of postgresVariables(process.env)) delete process.env[name];
}

export function postgresVariables(env: Environment): string[] {
  return Object.keys(env).filter((name) => /^PG[A-Z]+$/.test(name));
}

const LOOPBACK = ['127.0.0.1', 'localhost', '::1'];

/**
 * With NODE_USE_ENV_PROXY, Node's fetch sends requests to the proxy of HTTP_PROXY, those to loopback
 * too, where nothing but our own servers is. It reads NO_PROXY anew for each request, as our children
 * do when they start; downloads still go through the proxy.
 */
export function keepLoopbackOffProxies(): void {
  Object.assign(process.env, noProxyVariables(process.env));
}

/** In both spellings: programs look at the one or the other first. */
export function noProxyVariables(env: Environment): Record<'no_proxy' | 'NO_PROXY', string> {
  const given = (env['no_proxy'] ?? env['NO_PROXY'] ?? '').split(',').filter(Boolean);
  const value = [...new Set([...given, ...LOOPBACK])].join(',');
  return { no_proxy: value, NO_PROXY: value };
}

/**
 * What a server gets to see: nothing of the developer's own variables. A stray PGPORT, PGDATA or
 * LD_PRELOAD would otherwise change what runs, and LC_ALL=C keeps the log lines in the language
 * that we wait for.
 */
export function serverEnvironment(
  folder: string,
  { PATH = '' }: Environment,
): Record<string, string> {
  return { PATH, HOME: folder, TMPDIR: folder, TZ: 'UTC', LC_ALL: 'C' };
}
