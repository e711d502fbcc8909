import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { environment } from '../../infra/local/environment.ts';
import { startServices } from '../../infra/local/services.ts';

const given = {
  DATABASE_URL: 'postgres://me:secret@db.example/mine',
  REDIS_URL: 'redis://r.example',
  DYNAMODB_ENDPOINT: 'http://d.example',
};

test('a server that the environment names is used and not started', async () => {
  const services = await startServices({ env: given });
  onTestFinished(services.close);
  expect(services.postgres).toEqual({
    from: 'environment',
    url: given.DATABASE_URL,
    variable: 'DATABASE_URL',
  });
  expect(services.redis).toMatchObject({ from: 'environment', url: given.REDIS_URL });
  expect(services.dynamodb).toMatchObject({ from: 'environment', url: given.DYNAMODB_ENDPOINT });
});

test('the services go on without a Redis to be had, and say why', async () => {
  const empty = await temporaryFolder();
  const env = { ...given, REDIS_URL: undefined, PATH: empty, XDG_CACHE_HOME: empty };
  const services = await startServices({ env, log: () => {} });
  onTestFinished(services.close);
  expect(services.redis).toMatchObject({
    from: 'nowhere',
    url: undefined,
    reason: expect.stringMatching(/no valkey-server or redis-server on PATH;.*set REDIS_URL$/s),
  });
});

test('a Redis that does not start is reported, and the rest goes on', async () => {
  const folder = await temporaryFolder();
  const program = join(folder, 'valkey-server');
  const script = '#!/bin/sh\n[ "$1" = --version ] && echo "Valkey server v=8.0.1" || exit 7\n';
  await writeFile(program, script, { mode: 0o755 });
  const services = await startServices({ env: { ...given, REDIS_URL: undefined, PATH: folder } });
  onTestFinished(services.close);
  expect(services.redis).toMatchObject({
    from: 'nowhere',
    reason: expect.stringContaining('Redis did not start: ended with code 7'),
  });
});

test('close leaves nothing of the servers', async () => {
  const env = { ...environment(), ...given, DATABASE_URL: undefined, REDIS_URL: undefined };
  const services = await startServices({ env });
  const { runDir } = services;
  expect((await readdir(runDir)).map((name) => name.replace(/-.*/, '')).sort()).toEqual([
    // By which others see that this process lives.
    'alive',
    'postgres',
    'redis',
  ]);
  await services.close();
  expect(existsSync(runDir)).toBe(false);
});

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'backstop-test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
