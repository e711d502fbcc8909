/** What needs a service of `npm start` that runs: one for them all, whose parts each test brings back. */
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { askControl, type LocalInstance } from '../../infra/local/control-client.ts';
import { isFree } from '../../infra/local/ports.ts';
import { projectFolder } from '../../infra/local/project.ts';
import { localToken } from '../../infra/local/token.ts';
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
};

let copy: ServiceCopy;
let start: Program;
let instance: LocalInstance;

beforeAll(async () => {
  copy = await copyService(SHELL);
  start = await copy.startReady();
  instance = await copy.localFile();
});

afterEach(async () => {
  for (const name of ['redis', 'postgres', 'dynamodb']) await switchPart('start', name);
  await until('every part is up again', async () => {
    const { status, dependencies } = await healthOf(instance);
    return status === (hasDynamodb ? 'ok' : 'degraded') && dependencies['redis'] === 'up';
  });
});

/** As `npm run local` does, without a process for it. */
function switchPart(verb: 'stop' | 'start', name: string) {
  return askControl(instance.control, 'POST', `/${verb}/${name}`);
}

// In order, by SIGTERM, and nothing is left.
afterAll(async () => {
  start?.child.kill('SIGTERM');
  const code = await start?.ended;
  const left = copy.left();
  await copy.remove();
  expect([code, left]).toEqual([0, NOTHING_LEFT]);
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
  expect(execFileSync('npm', args, { cwd: projectFolder, env, encoding: 'utf8' }).trim()).toBe('');
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
  expect(await switchPart('stop', 'postgres')).toMatchObject({
    status: 200,
    message: expect.stringMatching(/^stopped postgres /),
  });
  expect(await healthOf(instance)).toMatchObject({ status: 'down' });
  expect((await switchPart('start', 'postgres')).status).toBe(200);
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

test('`npm run story` tells its story on it, and everything is as expected', async () => {
  const { code, stdout } = await programResult(copy.file('story.ts'), ['--json'], {
    env: { ...copy.env, API_URL: undefined },
  });
  const { ok, url, steps } = JSON.parse(stdout);
  expect(steps.filter((step: { ok?: boolean }) => step.ok !== true)).toEqual([]);
  expect(steps).toHaveLength(10);
  expect({ code, ok, url }).toEqual({ code: 0, ok: true, url: instance.url });
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

    expect(await switchPart('stop', 'dynamodb')).toMatchObject({
      status: 200,
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

    expect((await switchPart('start', 'dynamodb')).status).toBe(200);
    // From the table and not from Redis, which knows nothing any more.
    expect((await switchPart('stop', 'redis')).status).toBe(200);
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
