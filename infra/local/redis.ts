import { join } from 'node:path';
import { environment, serverEnvironment } from './environment.ts';
import { printError } from './output.ts';
import {
  findProgram,
  type Program,
  type Search,
  type Unavailable,
  type Wanted,
} from './program.ts';
import { createServerFolder } from './run-folder.ts';
import { type Server, type ServerOptions, startServer } from './server.ts';

export interface RedisOptions extends ServerOptions {
  /** Settings on top of the usual ones, such as `{ maxmemory: '10mb' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** `SET … NX GET` came with 7.0. */
const OLDEST_MAJOR = 7;

const REDIS: Wanted = {
  name: 'Redis',
  commands: ['valkey-server', 'redis-server'],
  args: ['--version'],
  judge: (output) => {
    const [, product, version = '0'] = /^(\w+) server v=([\d.]+)/i.exec(output) ?? [];
    if (Number.parseInt(version, 10) >= OLDEST_MAJOR) return { version: `${product} ${version}` };
    return { fault: `is version ${version}, too old` };
  },
  // Debian keeps the program itself in redis-tools.
  packages: [['redis-server', 'redis-tools']],
  locate: (root) => join(root, 'usr', 'bin', 'redis-server'),
};

/** Finds a real Redis or Valkey, or says why there is none and what to do. */
export async function findRedis(search: Search): Promise<Program | Unavailable> {
  const found = await findProgram(REDIS, search);
  if (!('unavailable' in found)) return found;
  const advice = 'install valkey-server or redis-server (7 or newer), or set REDIS_URL';
  return { unavailable: `${found.unavailable}: ${advice}` };
}

/**
 * Starts an empty Redis on a free loopback port. It keeps nothing on disk: after a stop and a start
 * it is empty again. Throws when there is none on this machine and none can be had.
 */
export async function startRedis(options: RedisOptions): Promise<Server> {
  const { runDir, port, onExit, settings, env = environment(), log = printError, signal } = options;
  const program = await findRedis({ env, log, signal });
  if ('unavailable' in program) throw new Error(program.unavailable);
  const folder = await createServerFolder(runDir, 'redis');
  return startServer({
    name: 'Redis',
    origin: `${program.version}, ${program.from}`,
    port,
    launch: (onPort) => ({
      command: program.command,
      args: redisArguments({ port: String(onPort), ...settings }),
      env: { ...serverEnvironment(folder, env), ...program.env },
      cwd: folder,
      logFile: join(folder, 'redis.log'),
    }),
    url: (onPort) => `redis://127.0.0.1:${onPort}`,
    ready: /Ready to accept connections/i,
    stopSignals: ['SIGTERM'],
    closeSignals: ['SIGTERM'],
    signal,
    onExit,
  });
}

/** Its settings as arguments: those asked for on top of the usual ones. */
export function redisArguments(settings: Readonly<Record<string, string>>): string[] {
  const all = { bind: '127.0.0.1', save: '', appendonly: 'no', ...settings };
  return Object.entries(all).flatMap(([name, value]) => [`--${name}`, value]);
}
