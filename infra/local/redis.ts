import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Environment, environment, serverEnvironment } from './environment.ts';
import { complain } from './output.ts';
import type { Exit } from './process.ts';
import { findRedis, type Missing, type RedisProgram } from './redis-program.ts';
import { createServerFolder } from './run-folder.ts';
import { type Server, startServer } from './server.ts';

export type RedisServer = Server;

export type RedisOptions = {
  /** The folder for its log, as `createRunFolder` makes it. */
  runDir: string;
  /** Called when the server ends without having been asked to. */
  onExit?: ((exit: Exit) => void) | undefined;
  /** Settings on top of the usual ones, such as `{ maxmemory: '10mb' }`. */
  settings?: Readonly<Record<string, string>>;
  env?: Environment;
  log?: (line: string) => void;
};

/** As `startRedis`, but answers with the reason, and what to do, when there is no Redis to run. */
export async function startRedisIfAny(options: RedisOptions): Promise<RedisServer | Missing> {
  const log = options.log ?? complain;
  const program = await findRedis(options.env ?? environment(), log);
  return 'missing' in program ? program : startProgram(program, options);
}

/**
 * Starts an empty Redis on a free loopback port. It keeps nothing on disk: after a stop and a start
 * it is empty again. Throws when there is none on this machine and none can be had.
 */
export async function startRedis(options: RedisOptions): Promise<RedisServer> {
  const server = await startRedisIfAny(options);
  if ('missing' in server) throw new Error(`no Redis: ${server.missing}`);
  return server;
}

async function startProgram(program: RedisProgram, options: RedisOptions): Promise<RedisServer> {
  const folder = await createServerFolder(options.runDir, 'redis');
  const path = (options.env ?? environment()).PATH ?? '';
  return startServer({
    name: 'Redis',
    origin: program.origin,
    logFile: join(folder, 'redis.log'),
    launch: (port) => ({
      command: program.command,
      args: [
        ...program.before(port),
        ...redisArguments(program.bind, program.port(port), options.settings),
      ],
      env: { ...serverEnvironment(folder, path), ...program.env },
      cwd: folder,
      logFile: join(folder, 'redis.log'),
    }),
    url: (port) => `redis://127.0.0.1:${port}`,
    ready: /Ready to accept connections/i,
    stopSignals: ['SIGTERM'],
    closeSignals: ['SIGTERM'],
    onExit: options.onExit,
    remove: () =>
      rm(folder, {
        recursive: true,
        force: true,
        maxRetries: 20,
        retryDelay: 50,
      }),
  });
}

/** Its settings as arguments: those asked for on top of the usual ones. */
export function redisArguments(
  bind: RedisProgram['bind'],
  port: number,
  settings: Readonly<Record<string, string>> = {},
): string[] {
  const all: Record<string, string> = {
    bind,
    port: String(port),
    // Without passwords, so for local connections only; a container sees the host as a stranger.
    'protected-mode': bind === '*' ? 'no' : 'yes',
    save: '',
    appendonly: 'no',
    ...settings,
  };
  return Object.entries(all).flatMap(([name, value]) => [`--${name}`, value]);
}
