import { existsSync } from 'node:fs';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { sendCommand } from '../../infra/local/control-client.ts';
import { handleCommand } from '../../infra/local/control-server.ts';
import type { Service } from '../../infra/local/services.ts';
import { programResult } from './fixtures/program.ts';
import { copyProject } from './fixtures/project-copy.ts';

const local = join(import.meta.dirname, '../../infra/local');

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
  const stale = { pid: process.pid, url: 'u', control: join(copy.folder, 'nobody-listens') };
  await mkdir(join(copy.folder, '.backstop'));
  await writeFile(join(copy.folder, '.backstop/local.json'), JSON.stringify(stale));
  expect(await ask()).toEqual(refused);
});

test('a server of the developer’s own, or none at all (yet), is not stopped', async () => {
  const redis: Service = { from: 'environment', url: 'redis://r.example', variable: 'REDIS_URL' };
  const postgres: Service = { from: 'nowhere', url: undefined, reason: 'it rains' };
  const dynamodb: Service = { from: 'starting', url: '', settled: new Promise(() => {}) };
  const services = { redis, postgres, dynamodb, runDir: '', close: async () => {} };
  const refusals = {
    'stop dynamodb': 'dynamodb is still starting',
    'stop redis': 'redis is your own (REDIS_URL): stop it where you started it',
    'start postgres': 'there is no postgres in this run: it rains',
    'stop cake': 'unknown command: stop cake',
  };
  for (const [line, message] of Object.entries(refusals)) {
    expect(await handleCommand(line, services)).toEqual({ code: 2, message });
  }
  expect(await handleCommand('stop redis', undefined)).toEqual({
    code: 2,
    message: 'the services are still starting',
  });
});

test('one instance at a time is that of a folder, and takes commands on a socket of its owner', async () => {
  const copy = await copyProject({ modules: 'link' });
  onTestFinished(copy.remove);
  const control = join(copy.folder, 'infra/local/control-server.ts');
  const { takeControl } = (await import(
    control
  )) as typeof import('../../infra/local/control-server.ts');
  const [one, two] = await Promise.all([takeControl('http://one'), takeControl('http://two')]);
  const [winner, refused] = 'other' in one ? [two, one] : [one, two];
  if ('other' in winner || !('other' in refused)) throw new Error('two instances, or none');
  const { other } = refused;
  expect(other).toMatchObject({ pid: process.pid, url: expect.stringMatching(/^http:/) });
  expect((await stat(other.control)).mode & 0o777).toBe(0o600);

  const fail = () => Promise.reject(new Error('stuck'));
  const server = { url: '', port: 1, pid: 2, origin: '', start: fail, stop: fail, close: fail };
  const redis: Service = { from: 'local', url: '', server };
  const services = { redis, postgres: redis, dynamodb: redis, runDir: '', close: async () => {} };
  await winner.ready({ databaseUrl: 'postgres://d.example' }, services);
  expect(await sendCommand(other.control, 'stop redis')).toEqual({ code: 1, message: 'stuck' });
  const written = join(copy.folder, '.backstop/local.json');
  expect((await stat(written)).mode & 0o777).toBe(0o600);
  expect(JSON.parse(await readFile(written, 'utf8'))).toEqual({
    ...other,
    databaseUrl: 'postgres://d.example',
  });

  await winner.close();
  expect(existsSync(written)).toBe(false);
  expect(existsSync(other.control)).toBe(false);
});
