import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { fetchDebianPackages } from '../../infra/local/debian-package.ts';
import { environment } from '../../infra/local/environment.ts';
import type { Exit } from '../../infra/local/process.ts';
import { findRedis, startRedis } from '../../infra/local/redis.ts';
import { createRunFolder, type RunFolder } from '../../infra/local/run-folder.ts';
import type { Server } from '../../infra/local/server.ts';
import { isRunning, until } from './fixtures/wait.ts';

describe('a Redis of our own', () => {
  let folder: RunFolder;
  let server: Server;
  // Filled by what a test does to its server; the tests run in any order.
  const exits: Exit[] = [];
  beforeEach(() => void exits.splice(0));

  beforeAll(async () => {
    folder = await createRunFolder();
    server = await startRedis({
      runDir: folder.path,
      onExit: (exit) => exits.push(exit),
      settings: { maxmemory: '50mb' },
    });
  });
  afterAll(async () => {
    await server?.close();
    await folder.remove();
  });

  test('Redis is a real one, new enough for SET NX GET, and keeps nothing on disk', async () => {
    expect(await ask((redis) => redis.call('SET', 'a', '1', 'NX', 'GET'))).toBeNull();
    expect(await ask((redis) => redis.call('SET', 'a', '2', 'NX', 'GET'))).toBe('1');
    expect(await ask((redis) => redis.config('GET', 'save'))).toEqual(['save', '']);
    expect(await ask((redis) => redis.config('GET', 'maxmemory'))).toEqual([
      'maxmemory',
      String(50 * 1024 * 1024),
    ]);
  });

  test('Redis stops, and starts again on its port, empty', async () => {
    const { port, pid } = server;
    await ask((redis) => redis.set('gone', '1'));
    await server.stop();
    expect(isRunning(pid)).toBe(false);
    await expect(ask((redis) => redis.ping())).rejects.toThrow();
    await server.start();
    expect(server.port).toBe(port);
    expect(await ask((redis) => redis.get('gone'))).toBeNull();
    expect(exits).toEqual([]);
  });

  test('commands that are given at once are done in order, and the last one holds', async () => {
    await Promise.all([server.stop(), server.start(), server.stop()]);
    expect(server.pid).toBeUndefined();
    await expect(ask((redis) => redis.ping())).rejects.toThrow();
    await Promise.all([server.start(), server.stop(), server.start()]);
    expect(await ask((redis) => redis.ping())).toBe('PONG');
    expect(exits).toEqual([]);
  });

  test('a Redis that dies by itself is reported', async () => {
    process.kill(server.pid ?? 0, 'SIGKILL');
    await until('the death is told', () => exits.length > 0);
    expect(exits).toEqual([{ code: null, signal: 'SIGKILL' }]);
    await server.start();
    expect(await ask((redis) => redis.ping())).toBe('PONG');
  });

  async function ask<T>(question: (redis: Redis) => Promise<T>): Promise<T> {
    const redis = new Redis(server.url, { lazyConnect: true, retryStrategy: null });
    redis.on('error', () => {});
    try {
      await redis.connect();
      return await question(redis);
    } finally {
      redis.disconnect();
    }
  }
});

describe('where Redis comes from', () => {
  test('a Redis that is too old is not used, and the reason names it', async () => {
    const folder = await temporaryFolder();
    await script(join(folder, 'redis-server'), 'echo "Redis server v=6.0.16 sha=0:0 bits=64"');
    const found = await findRedis({
      env: { PATH: folder, XDG_CACHE_HOME: folder, HOME: folder },
      log: () => {},
    });
    expect(found).toEqual({ unavailable: expect.stringContaining('version 6.0.16, too old') });
    expect(found).toEqual({ unavailable: expect.stringContaining('set REDIS_URL') });
  });

  test('a Valkey on PATH is used before a Redis on PATH', async () => {
    const folder = await temporaryFolder();
    await script(join(folder, 'redis-server'), 'echo "Redis server v=7.2.0 sha=0:0"');
    await script(join(folder, 'valkey-server'), 'echo "Valkey server v=8.0.1 sha=0:0"');
    const found = await findRedis({ env: { PATH: folder }, log: () => {} });
    expect(found).toMatchObject({ version: 'Valkey 8.0.1', from: 'on PATH' });
  });

  test('many fetches at once end with one good folder and no left-overs', async () => {
    const folder = await temporaryFolder();
    const bin = join(folder, 'bin');
    await mkdir(bin);
    // In place of apt and dpkg: the one "downloads" a package, the other "unpacks" it.
    await script(join(bin, 'apt-get'), 'touch cache/archives/redis-tools.deb');
    await script(join(bin, 'dpkg-deb'), 'mkdir -p "$3/usr/bin" && echo ok > "$3/usr/bin/program"');
    const env = { PATH: `${bin}:${environment().PATH}` };
    const cache = join(folder, 'cache');
    await mkdir(cache);
    const target = join(cache, 'redis');
    await Promise.all(
      Array.from({ length: 8 }, () => fetchDebianPackages(['redis-server'], target, env)),
    );
    expect(await readdir(cache)).toEqual(['redis']);
    expect(await readFile(join(target, 'usr/bin/program'), 'utf8')).toBe('ok\n');
  });

  test('a fetch that fails says what apt said, and leaves nothing', async () => {
    const folder = await temporaryFolder();
    const cache = join(folder, 'cache');
    await mkdir(cache);
    await script(join(folder, 'apt-get'), 'echo "E: no such package" >&2; exit 100');
    const env = { PATH: `${folder}:${environment().PATH}` };
    const fetched = fetchDebianPackages(['redis-server'], join(cache, 'redis'), env);
    await expect(fetched).rejects.toThrow(/ended with code 100\nE: no such package/);
    expect(await readdir(cache)).toEqual([]);
  });

  async function temporaryFolder(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'backstop-test-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    return folder;
  }

  async function script(path: string, body: string): Promise<void> {
    await writeFile(path, `#!/bin/sh\n${body}\n`);
    await chmod(path, 0o755);
  }
});
