import { chown, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { environment, serverEnvironment } from './environment.ts';
import { postgresBinaries } from './postgres-binaries.ts';
import { type Launch, runToEnd } from './process.ts';
import { createServerFolder, everyoneReaches, isRoot, unprivilegedIdentity } from './run-folder.ts';
import { type Server, type ServerOptions, startServer } from './server.ts';

export interface PostgresOptions extends ServerOptions {
  /** Survives a power cut; needless for tests, and slow. */
  readonly durable?: boolean;
  /** Settings on top of (and before) the usual ones, such as `{ max_connections: '20' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** What initdb is told. The builtin locale provider needs no locale of the operating system. */
export const CLUSTER_ARGUMENTS: readonly string[] = [
  '--encoding=UTF8',
  '--locale-provider=builtin',
  '--builtin-locale=C.UTF-8',
  '--locale=C',
];

/**
 * Starts a new, empty PostgreSQL on a free loopback port. `url` is its superuser's; there are no
 * passwords, so it listens on 127.0.0.1 alone and on no socket in the file system.
 */
export async function startPostgres(options: PostgresOptions): Promise<Server> {
  const folder = await createServerFolder(options.runDir, 'postgres');
  if (isRoot() && !everyoneReaches(folder)) {
    throw new Error(`as root, PostgreSQL runs as nobody, who cannot enter ${folder}`);
  }
  const binaries = await postgresBinaries(folder);
  const common = {
    cwd: folder,
    env: serverEnvironment(folder, options.env ?? environment()),
    logFile: join(folder, 'postgres.log'),
    identity: unprivilegedIdentity(),
    signal: options.signal,
  };
  const data = join(folder, 'data');
  await createCluster(binaries.initdb, data, common);
  return startServer({
    name: 'PostgreSQL',
    origin: 'PostgreSQL 17, from npm',
    launch: (port) => ({
      ...common,
      command: binaries.postgres,
      args: ['-D', data, ...settingArguments(port, options)],
      // "immediate": it ends its backends and gives its shared memory back, which SIGKILL does not.
      endSignal: 'SIGQUIT',
    }),
    url: (port) => `postgres://postgres@127.0.0.1:${port}/postgres`,
    ready: /database system is ready to accept connections/,
    // After a kill -9 its orphaned backends need a moment to notice.
    passing: /shared memory block .* is still in use|lock file "postmaster.pid" already exists/,
    // "fast": cuts open connections; then "immediate", which recovers from the log at the next start.
    stopSignals: ['SIGINT', 'SIGQUIT'],
    closeSignals: ['SIGQUIT'],
    port: options.port,
    signal: options.signal,
    onExit: options.onExit,
  });
}

type Common = Pick<Launch, 'cwd' | 'env' | 'logFile' | 'identity' | 'signal'>;

async function createCluster(initdb: string, data: string, common: Common): Promise<void> {
  await mkdir(data, { mode: 0o700 });
  if (common.identity !== undefined) await chown(data, common.identity.uid, common.identity.gid);
  await runToEnd({
    ...common,
    command: initdb,
    args: ['-D', data, '-U', 'postgres', '-A', 'trust', ...CLUSTER_ARGUMENTS, '--no-sync'],
  });
}

function settingArguments(port: number, { durable = false, settings = {} }: PostgresOptions) {
  return postgresArguments({
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: '',
    ...(durable && { fsync: 'on' }),
    ...settings,
  });
}

/** Its settings as arguments: those asked for on top of the usual ones. */
export function postgresArguments(settings: Readonly<Record<string, string>>): string[] {
  const all: Record<string, string> = {
    max_connections: '200',
    timezone: 'UTC',
    log_timezone: 'UTC',
    // Without fsync a power cut loses data, a killed server does not: what it wrote is with the
    // kernel. That holds only while commits are written at once and whole pages are logged, so
    // synchronous_commit and full_page_writes stay on.
    fsync: 'off',
    // Refused statements (a duplicate's claim is one) are everyday here; their callers report them.
    log_min_messages: 'log',
    ...settings,
  };
  return Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}
