/** `npm start` where it does not get to the end; what needs a whole one is in service.test.ts. */
import { createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { isFree } from '../../infra/local/ports.ts';
import { programResult } from './fixtures/program.ts';
import { copyService, NOTHING_LEFT } from './fixtures/service-copy.ts';
import { until } from './fixtures/wait.ts';

/** Somebody's own DynamoDB, which is down: the same to the service as one that cannot be had. */
const NO_DYNAMODB = { DYNAMODB_ENDPOINT: 'http://127.0.0.1:9' };

test('a start that is killed as its API starts leaves nothing, and reports a table that cannot be made', async () => {
  const copy = await prepare();
  const start = copy.start();
  const line = /^no table backstop at http:\/\/127\.0\.0\.1:9\/: /m;
  await until('it is told', () => line.test(start.stdout()));
  const isApi = (line: string) => line.includes('serverless') && line.includes('offline');
  await until('the API is starting', () => copy.processes().some(isApi));
  const { port } = new URL((await copy.localFile()).url);
  start.child.kill('SIGKILL');
  await copy.seeCleanedUp();
  expect(await isFree(Number(port))).toBe(true);
});

test('a start that is interrupted half-way leaves nothing', async () => {
  const copy = await prepare();
  const start = copy.start();
  await until('the servers are starting', () => copy.processes().length > 2);
  start.child.kill('SIGINT');
  expect(await start.ended).toBe(0);
  expect(start.stderr()).toBe('');
  expect(start.stdout()).not.toContain('brings it back');
  expect(copy.left()).toEqual(NOTHING_LEFT);
});

test('a start that fails says why, ends with 1 and leaves nothing', async () => {
  const copy = await prepare();
  const result = await copy.startInVain();
  expect(result).toMatchObject({ code: 1, stderr: expect.stringContaining('ECONNREFUSED') });
  expect(result.stdout + result.stderr).not.toContain('secret');
  expect(copy.left()).toEqual(NOTHING_LEFT);
});

test('a port that is taken is refused before anything starts', async () => {
  const copy = await prepare();
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await until('it listens', () => server.listening);
  const { port } = server.address() as { port: number };
  const env = { ...copy.env, PORT: String(port) };
  const result = await programResult(copy.file('start.ts'), [], { env });
  expect(result).toMatchObject({ code: 2, stdout: '' });
  expect(result.stderr).toContain(`port ${port} is taken`);
  const word = await programResult(copy.file('start.ts'), [], {
    env: { ...copy.env, PORT: 'http' },
  });
  expect(word).toMatchObject({ code: 2, stderr: 'PORT=http is not a port\n' });
});

async function prepare() {
  const copy = await copyService(NO_DYNAMODB);
  onTestFinished(copy.remove);
  return copy;
}
