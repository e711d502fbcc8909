import { mkdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { askControl } from '../../infra/local/control-client.ts';
import { type Controlled, startControlServer } from '../../infra/local/control-server.ts';
import type { Part } from '../../infra/local/services.ts';
import { programResult } from './fixtures/program.ts';
import { copyProject } from './fixtures/project-copy.ts';

const local = join(import.meta.dirname, '../../infra/local');
const instance = { pid: 1, state: 'ready', url: 'u', control: 'c', log: 'l' } as const;

test.each([
  [],
  ['stop'],
  ['stop', 'everything'],
  ['pause', 'redis'],
  ['stop', 'redis', 'now'],
  ['-x'],
])('`npm run local -- %s %s %s` is refused with the usage', async (...words) => {
  const result = await programResult(join(local, 'control.ts'), words);
  expect(result).toMatchObject({ code: 2, stdout: '' });
  expect(result.stderr).toBe('usage: npm run local -- stop|start postgres|redis|dynamodb\n');
});

test('the command says how to start the service when nothing runs from the folder', async () => {
  const copy = await copyProject({ modules: 'none' });
  onTestFinished(copy.remove);
  const ask = () => programResult(join(copy.folder, 'infra/local/control.ts'), ['stop', 'redis']);
  const refused = { code: 2, stdout: '', stderr: expect.stringContaining('npm start') };
  expect(await ask()).toEqual(refused);
  // Nor when a file says that something does: its socket is dead, though the pid is alive.
  const stale = { ...instance, pid: process.pid, control: join(copy.folder, 'nobody-listens') };
  await mkdir(join(copy.folder, '.backstop'));
  await writeFile(join(copy.folder, '.backstop/local.json'), JSON.stringify(stale));
  expect(await ask()).toEqual(refused);
});

test('a server of the developer’s own, or none at all (yet), is not stopped', async () => {
  const redis: Part = { from: 'environment', url: 'redis://r.example', variable: 'REDIS_URL' };
  const postgres: Part = { from: 'nowhere', url: undefined, reason: 'it rains' };
  const dynamodb: Part = { from: 'starting', url: '', settled: new Promise(() => {}) };
  const services = { redis, postgres, dynamodb, runDir: '', close: async () => {} };
  const { path } = await controlServer({ instance, services });
  expect(await askControl(path, 'POST', '/stop/dynamodb')).toEqual({
    status: 409,
    message: 'dynamodb is still starting',
  });
  expect(await askControl(path, 'POST', '/stop/redis')).toEqual({
    status: 409,
    message: 'redis is your own (REDIS_URL): stop it where you started it',
  });
  expect(await askControl(path, 'POST', '/start/postgres')).toEqual({
    status: 409,
    message: 'there is no postgres in this run: it rains',
  });
  expect(await askControl(path, 'POST', '/stop/cake')).toMatchObject({ status: 404 });
});

test('a stop that fails is reported, and not swallowed', async () => {
  const fail = () => Promise.reject(new Error('stuck'));
  const server = { url: '', port: 1, pid: 2, origin: '', start: fail, stop: fail, close: fail };
  const redis: Part = { from: 'local', url: '', server };
  const services = {
    redis,
    postgres: redis,
    dynamodb: redis,
    runDir: '',
    close: async () => {},
  };
  const { path } = await controlServer({ instance, services });
  expect(await askControl(path, 'POST', '/stop/redis')).toEqual({ status: 500, message: 'stuck' });
});

test('only its owner can open the socket, and it answers who runs', async () => {
  const { path } = await controlServer({ instance });
  expect((await stat(path)).mode & 0o777).toBe(0o600);
  expect((await stat(join(path, '..'))).mode & 0o777).toBe(0o700);
  expect(JSON.parse((await askControl(path, 'GET', '/')).message)).toEqual(instance);
  expect(await askControl(path, 'POST', '/stop/redis')).toMatchObject({ status: 409 });
});

async function controlServer(controlled: Controlled) {
  const server = await startControlServer(() => controlled);
  onTestFinished(server.close);
  return server;
}
