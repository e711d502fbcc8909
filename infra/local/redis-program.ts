import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder } from './cache-folder.ts';
import { debianOrigin, debianRelease, fetchDebianPackages, libraryPath } from './debian-package.ts';
import type { Environment } from './environment.ts';
import { dockerInfoMs, images } from './images.ts';
import { hangMs } from './process.ts';

/** How a Redis server is run here. `before` comes before its own arguments. */
export type RedisProgram = {
  command: string;
  before(port: number): readonly string[];
  env: Readonly<Record<string, string>>;
  origin: string;
  /** In a container it listens on all of the container's own addresses. */
  bind: '127.0.0.1' | '*';
  port(port: number): number;
};

export type Missing = { missing: string };

const execute = promisify(execFile);
/** `SET … NX GET` came with 7.0. */
const oldestMajor = 7;
const redisPort = 6379;

/**
 * Finds a real Redis (or Valkey): on PATH; from the distribution's own package, fetched once into
 * a cache folder; in Docker. Otherwise says why there is none and what to do.
 */
export async function findRedis(
  env: Environment,
  log: (line: string) => void,
): Promise<RedisProgram | Missing> {
  const reasons: string[] = [];
  for (const find of [findOnPath, findFetched, findInDocker]) {
    const found = await find(env, log).catch((error: Error) => ({
      missing: error.message,
    }));
    if (!('missing' in found)) return found;
    reasons.push(found.missing);
  }
  const advice = 'install valkey-server or redis-server (7 or newer), or set REDIS_URL';
  return { missing: `${reasons.join('; ')}: ${advice}` };
}

async function findOnPath(env: Environment): Promise<RedisProgram | Missing> {
  const reasons: string[] = [];
  for (const name of ['valkey-server', 'redis-server']) {
    for (const folder of (env.PATH ?? '').split(delimiter).filter(Boolean)) {
      const command = join(folder, name);
      if (!isExecutable(command)) continue;
      const found = await describeProgram(command, {}, 'on PATH');
      if (!('missing' in found)) return found;
      reasons.push(found.missing);
    }
  }
  return {
    missing: reasons.join('; ') || 'no valkey-server or redis-server on PATH',
  };
}

async function findFetched(
  env: Environment,
  log: (line: string) => void,
): Promise<RedisProgram | Missing> {
  const release = debianRelease();
  if (release === undefined) return { missing: 'no Debian or Ubuntu to fetch a package from' };
  const root = join(cacheFolder(env), `redis-${release}`);
  const command = join(root, 'usr', 'bin', 'redis-server');
  const libraries = { LD_LIBRARY_PATH: libraryPath(root) };
  const origin = debianOrigin(release);
  if (existsSync(command)) {
    const cached = await describeProgram(command, libraries, origin);
    if (!('missing' in cached)) return cached;
    await rm(root, { recursive: true, force: true });
  }
  log('fetching redis-server from the distribution into a cache folder (once, some seconds)');
  // Debian keeps the program itself in redis-tools.
  await fetchDebianPackages(['redis-server', 'redis-tools'], root, env);
  return describeProgram(command, libraries, origin);
}

/** Runs it once for its version: that also shows that it finds its libraries. */
async function describeProgram(
  command: string,
  env: Readonly<Record<string, string>>,
  from: string,
): Promise<RedisProgram | Missing> {
  try {
    const { stdout } = await execute(command, ['--version'], {
      env: { ...env },
      timeout: hangMs,
    });
    const [, product = 'Redis', version = '0'] = /^(\w+) server v=([\d.]+)/i.exec(stdout) ?? [];
    if (Number.parseInt(version, 10) < oldestMajor) {
      return { missing: `${command} is version ${version}, too old` };
    }
    return {
      command,
      before: () => [],
      env,
      origin: `${product} ${version}, ${from}`,
      bind: '127.0.0.1',
      port: (port) => port,
    };
  } catch (error) {
    const [line] = (error as Error).message.split('\n').slice(-2);
    return { missing: `${command} does not run: ${line}` };
  }
}

/** The client stays in the foreground as our child: it passes the signal on, and --rm cleans up. */
async function findInDocker(env: Environment): Promise<RedisProgram | Missing> {
  try {
    await execute('docker', ['info'], { env: { ...env }, timeout: dockerInfoMs });
  } catch {
    return { missing: 'no Docker engine answers' };
  }
  const publish = (port: number) => `127.0.0.1:${port}:${redisPort}`;
  return {
    command: 'docker',
    before: (port) => ['run', '--rm', '-p', publish(port), images.redis, 'valkey-server'],
    env: Object.fromEntries(
      Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
    ),
    origin: 'Valkey 8, in Docker',
    bind: '*',
    port: () => redisPort,
  };
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
