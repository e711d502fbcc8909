/** What needs a service of `npm start` that runs: one for them all, whose parts each test brings back. */
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type LocalInstance, sendCommand } from '../../infra/local/control-client.ts';
import { isFree } from '../../infra/local/ports.ts';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
import { localToken } from '../../infra/local/token.ts';
import { STORY, type StepResult, tellStory } from '../e2e/story.ts';
import { dynamodbUrl } from '../support/dynamodb.ts';
import { type Program, programResult } from './fixtures/program.ts';
import { copyService, healthOf, NOTHING_LEFT, type ServiceCopy } from './fixtures/service-copy.ts';
import { until } from './fixtures/wait.ts';

// Once that of the whole run is there, another can be had, and nothing has to be fetched.
const hasDynamodb = (await dynamodbUrl()) !== undefined;

/** C132, C134: what the shell may have set for other servers and programs keeps nothing from starting. */
const SHELL = {
  PGHOST: 'nowhere.invalid',
  PGPORT: '1',
  PGUSER: 'nobody',
  PGDATABASE: 'nothing',
  PGSSLMODE: 'require',
  PGSSLNEGOTIATION: 'direct',
  PGOPTIONS: '-c no_such_setting=1',
  PGCLIENTENCODING: 'NONSENSE',
  PGREPLICATION: 'database',
  PGBINARY: 'true',
  NODE_ENV: 'production',
  NODE_USE_ENV_PROXY: '1',
  NO_PROXY: 'elsewhere.example',
};

/** What was asked of the proxy that the shell names. */
const proxied: string[] = [];
const proxy = createServer((request, response) => {
  proxied.push(request.url ?? '');
  response.writeHead(502).end();
}).on('connect', (request, socket) => {
  proxied.push(request.url ?? '');
  socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n');
});

let copy: ServiceCopy;
let start: Program;
let instance: LocalInstance & { url: string };

beforeAll(async () => {
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const names = ['HTTP_PROXY', 'http_proxy', 'HTTPS_PROXY', 'ALL_PROXY', 'all_proxy'];
  copy = await copyService({ ...SHELL, ...Object.fromEntries(names.map((name) => [name, url])) });
  start = await copy.startReady();
  instance = await copy.localFile();
});

afterEach(async () => {
  for (const name of ['redis', 'postgres', 'dynamodb']) await stopOrStart('start', name);
  await until('every part is up again', async () => {
    const { status, dependencies } = await healthOf(instance);
    return status === (hasDynamodb ? 'ok' : 'degraded') && dependencies['redis'] === 'up';
  });
});

/** As `npm run local` does, without a process for it. */
function stopOrStart(verb: 'stop' | 'start', name: string) {
  return sendCommand(instance.control, `${verb} ${name}`);
}

// In order, by SIGTERM, and nothing is left.
afterAll(async () => {
  start?.child.kill('SIGTERM');
  const code = await start?.ended;
  const left = copy.left();
  proxy.close();
  await copy.remove();
  expect([code, start?.stderr(), left]).toEqual([0, '', NOTHING_LEFT]);
  expect(await isFree(Number(new URL(instance.url).port))).toBe(true);
});

test('the service and the purge reach their own servers with PG variables of another in the shell (C132)', async () => {
  expect((await healthOf(instance)).dependencies).toMatchObject({ postgres: 'up' });
  const purged = await programResult(copy.file('purge.ts'), ['--dry-run'], { env: copy.env });
  expect(purged).toMatchObject({ code: 0, stderr: '' });
});

test('npm ci under NODE_ENV=production installs all that npm start needs (C134)', async () => {
  const env = { ...process.env, NODE_ENV: 'production' };
  const args = ['config', 'get', 'omit'];
  expect(execFileSync('npm', args, { cwd: PROJECT_FOLDER, env, encoding: 'utf8' }).trim()).toBe('');
});

test('a second start from the same folder is refused, and says where the first is', async () => {
  const second = await programResult(copy.file('start.ts'), [], { env: copy.env });
  expect(second).toEqual({
    code: 2,
    stdout: '',
    stderr: `already running from this folder: ${instance.url} (pid ${start.child.pid})\n`,
  });
});

test('the service is degraded while Redis is stopped, and well when it is started again', async () => {
  expect(await copy.control('stop', 'redis')).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^stopped redis /),
  });
  expect(await healthOf(instance)).toMatchObject({ status: 'degraded' });
  expect(await copy.control('stop', 'redis')).toMatchObject({
    stdout: expect.stringMatching(/^redis was stopped already/),
  });
  expect(await copy.control('start', 'redis')).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^started redis /),
  });
  await until('Redis is up', async () => (await healthOf(instance)).dependencies['redis'] === 'up');
});

test('the service is down while Postgres is stopped, and well when it is started again', async () => {
  expect(await stopOrStart('stop', 'postgres')).toMatchObject({
    code: 0,
    message: expect.stringMatching(/^stopped postgres /),
  });
  expect(await healthOf(instance)).toMatchObject({ status: 'down' });
  expect((await stopOrStart('start', 'postgres')).code).toBe(0);
  await until('it is not down', async () => (await healthOf(instance)).status !== 'down');
});

test('a server that dies is reported in a line, and the others go on', async () => {
  const told = () => start.stdout().split('redis was ended by SIGKILL').length - 1;
  const before = told();
  const redis = copy
    .processes()
    .find((line) => line.includes('redis-server') || line.includes('valkey'));
  process.kill(Number.parseInt(redis ?? '', 10), 'SIGKILL');
  await until('it is told', () => told() > before);
  expect(await healthOf(instance)).toMatchObject({ status: 'degraded' });
});

describe('the story of the service', () => {
  const results: StepResult[] = [];
  beforeAll(() => tellStory(instance, (result) => void results.push(result)));

  test.each(STORY)('the step "$name" ends as expected', ({ name, expected }) => {
    expect(results.find((result) => result.name === name)).toMatchObject({ seen: expected });
  });
});

test('no request to loopback goes through the proxy that the shell names', async () => {
  const { stdout } = await programResult(copy.file('../../test/e2e/run-story.ts'), ['--json'], {
    env: { ...copy.env, API_URL: undefined },
  });
  expect(JSON.parse(stdout)).toMatchObject({ ok: true, url: instance.url });
  expect(start.stdout()).toContain("curl -i --noproxy '*' http://127.0.0.1");
  expect(proxied.filter((url) => /127\.0\.0\.1|localhost/.test(url))).toEqual([]);
});

test.skipIf(!hasDynamodb)('the DynamoDB of the service listens on loopback alone (C111)', () => {
  const port = Number(new URL(instance.dynamodbEndpoint ?? '').port);
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  const listening = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((file) =>
    execFileSync('cat', [file], { encoding: 'utf8' })
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(([, local, , state]) => state === '0A' && local?.endsWith(`:${hex}`))
      .map(([, local]) => local?.split(':')[0]),
  );
  // 127.0.0.1, plain or as an IPv6 address, in the kernel's byte order.
  expect(listening).toHaveLength(1);
  expect(listening[0]).toMatch(/^(?:0000000000000000FFFF0000)?0100007F$/);
});

test.skipIf(!hasDynamodb)(
  'a route answers 503 while DynamoDB is away, and a replay when it is back on its port with its data',
  async () => {
    const [one, two, three] = [randomUUID(), randomUUID(), randomUUID()];
    await until('DynamoDB is up', async () => {
      return (await healthOf(instance)).dependencies['dynamodb'] === 'up';
    });
    const first = await award(one);
    expect(first).toMatchObject({ status: 201, replayed: null, json: { badges: ['gold'] } });

    expect(await stopOrStart('stop', 'dynamodb')).toMatchObject({
      code: 0,
      message: expect.stringMatching(/^stopped dynamodb /),
    });
    expect(await healthOf(instance)).toMatchObject({
      dependencies: { postgres: 'up', dynamodb: 'down' },
    });
    for (const key of [two, three]) {
      const away = await award(key);
      expect(away).toMatchObject({ status: 503, json: { code: 'UNAVAILABLE', retryable: true } });
      expect(away.json['detail']).toMatch(/^DynamoDB cannot be reached/);
    }

    expect((await stopOrStart('start', 'dynamodb')).code).toBe(0);
    // From the table and not from Redis, which knows nothing any more.
    expect((await stopOrStart('stop', 'redis')).code).toBe(0);
    expect(await award(one)).toEqual({ ...first, replayed: 'true' });
    expect(await award(two)).toMatchObject({ status: 201, json: { badges: ['gold', 'gold'] } });
  },
);

async function award(key: string) {
  const response = await fetch(`${instance.url}/players/me/badges`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${localToken('alice')}`,
      'content-type': 'application/json',
      'idempotency-key': key,
    },
    body: '{"badge":"gold"}',
  });
  const json = (await response.json()) as Record<string, unknown>;
  const replayed = response.headers.get('idempotency-replayed');
  return { status: response.status, json, replayed };
}
