/** `npm run services`, and the serverless-offline that somebody starts on them with the line that it prints. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { freePort } from '../../infra/local/ports.ts';
import { programResult, runProgram } from './fixtures/program.ts';
import { copyService, healthOf, NOTHING_LEFT } from './fixtures/service-copy.ts';
import { until } from './fixtures/wait.ts';

/** What the shell has set for other servers. */
const SHELL = { PGSSLMODE: 'require', PGOPTIONS: '-c no_such_setting=1', NODE_ENV: 'production' };

test('the services run without the API, and the line that they print starts it on them', async () => {
  const copy = await copyService({ ...SHELL, DYNAMODB_ENDPOINT: 'http://127.0.0.1:9' });
  onTestFinished(copy.remove);
  const services = runProgram(copy.file('start.ts'), ['--without-api'], { env: copy.env });
  onTestFinished(() => void services.child.kill('SIGKILL'));
  await until('ready, or the end', () => {
    return services.stdout().includes('\nCtrl-C') || services.child.exitCode !== null;
  });
  expect(services.stderr()).toBe('');

  const envFile = join(copy.folder, '.backstop/services.env');
  expect((await stat(envFile)).mode & 0o777).toBe(0o600);
  const [, line = ''] = /^ +(env .*serverless offline .*)$/m.exec(services.stdout()) ?? [];
  expect(line).toMatch(/^env -u PGSSLMODE -u PGOPTIONS -u NODE_ENV /);
  const url = `http://127.0.0.1:${await freePort()}`;
  const ports = `--httpPort ${new URL(url).port} --lambdaPort ${await freePort()}`;
  const options = { cwd: copy.folder, env: { ...process.env, ...copy.env }, detached: true };
  const api = spawn('sh', ['-c', `exec ${line} ${ports}`], { ...options, stdio: 'ignore' });
  onTestFinished(() => void api.kill('SIGKILL'));
  await until('the API answers', async () => {
    expect(api.exitCode).toBeNull();
    return healthOf({ url }).then(
      ({ status }) => status === 'degraded',
      () => false,
    );
  });
  expect(await healthOf({ url })).toMatchObject({ dependencies: { postgres: 'up', redis: 'up' } });

  // The other commands know these services as they know those of npm start.
  expect(await copy.control('stop', 'redis')).toMatchObject({ code: 0 });
  expect(await healthOf({ url })).toMatchObject({ dependencies: { redis: 'down' } });
  const story = copy.file('../../test/e2e/run-story.ts');
  const told = await programResult(story, [], { env: { ...copy.env, API_URL: undefined } });
  expect(told).toMatchObject({ code: 1, stderr: expect.stringContaining('API_URL=http://') });
  const second = await programResult(copy.file('start.ts'), [], { env: copy.env });
  expect(second).toMatchObject({ code: 2, stderr: expect.stringContaining('the services alone') });

  api.kill('SIGKILL');
  services.child.kill('SIGINT');
  expect(await services.ended).toBe(0);
  await until('the API has ended', () => copy.processes().length === 0);
  expect(copy.left()).toEqual(NOTHING_LEFT);
  expect(existsSync(envFile)).toBe(false);
});

test('an unknown option is refused with the usage', async () => {
  const copy = await copyService();
  onTestFinished(copy.remove);
  const result = await programResult(copy.file('start.ts'), ['--with-cake'], { env: copy.env });
  expect(result).toMatchObject({ code: 2, stderr: 'usage: npm start, or npm run services\n' });
});
