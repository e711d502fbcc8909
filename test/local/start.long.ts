/** `npm start`, whole and from nothing for each test: the long form of service.test.ts and start.test.ts. */
import { expect, onTestFinished, test } from 'vitest';
import { isFree } from '../../infra/local/ports.ts';
import { programResult } from './fixtures/program.ts';
import { copyService, healthOf, NOTHING_LEFT } from './fixtures/service-copy.ts';
import { until } from './fixtures/wait.ts';

test('a service that is killed when it is ready leaves nothing all the same', async () => {
  const copy = await prepare();
  const start = await copy.startReady();
  const { port } = new URL((await copy.localFile()).url);
  start.child.kill('SIGKILL');
  await copy.seeCleanedUp();
  expect(await isFree(Number(port))).toBe(true);
});

test('a service with a server that has died leaves nothing at SIGINT', async () => {
  const copy = await prepare();
  const start = await copy.startReady();
  const redis = copy
    .processes()
    .find((line) => line.includes('redis-server') || line.includes('valkey'));
  process.kill(Number.parseInt(redis ?? '', 10), 'SIGKILL');
  await until('it is told', () => start.stdout().includes('redis was ended by SIGKILL'));
  start.child.kill('SIGINT');
  expect(await start.ended).toBe(0);
  expect(start.stderr()).toBe('');
  expect(copy.left()).toEqual(NOTHING_LEFT);
});

test('the service says why there is no DynamoDB, and the rest of it is ready', async () => {
  const copy = await prepare({ DYNAMODB_ENDPOINT: 'http://127.0.0.1:9' });
  const start = await copy.startReady();
  expect(start.stdout()).toMatch(/DynamoDB +http:\/\/127\.0\.0\.1:9\/ +\(from DYNAMODB_ENDPOINT\)/);
  await until('it is told', () => /^no table backstop at /m.test(start.stdout()));
  expect(await healthOf(await copy.localFile())).toEqual({
    status: 'degraded',
    dependencies: { postgres: 'up', redis: 'up', dynamodb: 'down' },
  });
  expect(await copy.control('stop', 'dynamodb')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('dynamodb is your own (DYNAMODB_ENDPOINT)'),
  });
  start.child.kill('SIGTERM');
  expect(await start.ended).toBe(0);
});

test('`npm run story` on a service that it starts itself finds everything as expected', async () => {
  const copy = await prepare();
  const env = { ...copy.env, API_URL: undefined };
  const { code, stdout } = await programResult(
    copy.file('../../test/e2e/run-story.ts'),
    ['--json'],
    { env },
  );
  const { ok, steps } = JSON.parse(stdout);
  expect(steps.filter((step: { ok?: boolean }) => step.ok !== true)).toEqual([]);
  expect(steps).toHaveLength(10);
  expect({ code, ok }).toEqual({ code: 0, ok: true });
  expect(copy.left()).toEqual(NOTHING_LEFT);
});

async function prepare(more: Record<string, string> = {}) {
  const copy = await copyService(more);
  onTestFinished(copy.remove);
  return copy;
}
