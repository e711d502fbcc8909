import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import type { LocalInstance } from '../../infra/local/control-client.ts';
import {
  type DynamodbServer,
  startDynamodb,
  startDynamodbIfAny,
} from '../../infra/local/dynamodb.ts';
import { findDynamodb } from '../../infra/local/dynamodb-program.ts';
import { prepareTable } from '../../infra/local/dynamodb-table.ts';
import { environment } from '../../infra/local/environment.ts';
import type { Exit } from '../../infra/local/process.ts';
import { startedAt } from '../../infra/local/process-table.ts';
import { createRunFolder, type RunFolder } from '../../infra/local/run-folder.ts';
import { startServices } from '../../infra/local/services.ts';
import { localToken } from '../../infra/local/token.ts';
import { dynamodbUrl, tableAt } from '../support/dynamodb.ts';
import { prepareCopy } from './fixtures/prepared-copy.ts';
import { type Program, programResult, runProgram } from './fixtures/program.ts';
import { until } from './fixtures/wait.ts';

// Once that of the whole run is there, another can be had, and nothing has to be fetched.
const isHere = (await dynamodbUrl()) !== undefined;
const slow = { timeout: 180_000 };

describe.skipIf(!isHere)('a DynamoDB of our own', slow, () => {
  let folder: RunFolder;
  let server: DynamodbServer;
  // Filled by what a test does to its server; the tests run in any order.
  const exits: Exit[] = [];
  beforeEach(() => void exits.splice(0));

  beforeAll(async () => {
    folder = await createRunFolder();
    server = await startDynamodb({ runDir: folder.path, onExit: (exit) => exits.push(exit) });
  }, 180_000);
  afterAll(async () => {
    await server?.close();
    await folder.remove();
  });

  test('C111 listens on loopback alone', async () => {
    const hex = server.port.toString(16).toUpperCase().padStart(4, '0');
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

  test('stops, and starts again on its port, with its data', async () => {
    const { port, pid, url } = server;
    await prepareTable(url, 'keeps');
    await prepareTable(url, 'keeps'); // It is there already: nothing is done, and nothing said.
    const table = tableAt(url, 'keeps');
    onTestFinished(() => table.close());
    const write = { TableName: 'keeps', Item: { pk: { S: 'a' } } };
    const { PutItemCommand } = await import('@aws-sdk/client-dynamodb');
    await table.client.send(new PutItemCommand(write));
    await server.stop();
    expect(startedAt(pid ?? 0)).toBeUndefined();
    await expect(table.get('a')).rejects.toThrow('DynamoDB cannot be reached');
    await server.start();
    expect(server.port).toBe(port);
    expect(await table.get('a')).toEqual({ pk: { S: 'a' } });
    expect(exits).toEqual([]);
  });

  test('a death by itself is told', async () => {
    process.kill(server.pid ?? 0, 'SIGKILL');
    await until('the death is told', () => exits.length > 0);
    expect(exits).toEqual([{ code: null, signal: 'SIGKILL' }]);
    await server.start();
    expect((await fetch(server.url)).status).toBe(400);
  });
});

describe.skipIf(!isHere)('late', slow, () => {
  const others = { DATABASE_URL: 'postgres://d.example/x', REDIS_URL: 'redis://r.example' };
  const env = { ...environment(), ...others, DYNAMODB_ENDPOINT: undefined };

  test('nobody waits for it, and everybody knows where it will be', async () => {
    const services = await startServices({ env });
    onTestFinished(services.close);
    const { dynamodb } = services;
    if (dynamodb.from !== 'starting') throw new Error(dynamodb.from);
    const settled = await dynamodb.settled;
    expect(settled).toMatchObject({ from: 'local', url: dynamodb.url });
    expect(services.dynamodb).toBe(settled);
    expect((await fetch(dynamodb.url)).status).toBe(400);
  });

  test('closed before it is there, it is not waited for, and nothing is left', async () => {
    const lines: string[] = [];
    const services = await startServices({ env, log: (line) => lines.push(line) });
    const { dynamodb, runDir } = services;
    if (dynamodb.from !== 'starting') throw new Error(dynamodb.from);
    await until('it is being started', async () =>
      (await readdir(runDir)).some((name) => name.startsWith('dynamodb-')),
    );
    await services.close();
    expect(await dynamodb.settled).toMatchObject({ from: 'nowhere' });
    expect(existsSync(runDir)).toBe(false);
    expect(lines).toEqual([]);
    await expect(fetch(dynamodb.url)).rejects.toThrow();
  });

  test('a port that others took is told, and not exchanged for one that nobody knows', async () => {
    const folder = await createRunFolder();
    onTestFinished(folder.remove);
    const taken = createServer().listen(0, '127.0.0.1');
    onTestFinished(() => void taken.close());
    await until('it listens', () => taken.listening);
    const { port } = taken.address() as { port: number };
    const started = startDynamodb({ runDir: folder.path, port });
    await expect(started).rejects.toThrow(/DynamoDB did not start.*Address already in use/s);
  });
});

describe('where DynamoDB comes from', () => {
  const nowhere = () => {};

  async function search(programs: Record<string, string>) {
    const folder = await mkdtemp(join(tmpdir(), 'backstop-test-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const bin = join(folder, 'bin');
    const cache = join(folder, 'cache');
    await mkdir(bin);
    await mkdir(cache);
    for (const [name, body] of Object.entries(programs)) {
      await writeFile(join(bin, name), `#!/bin/sh\n${body}\n`);
      await chmod(join(bin, name), 0o755);
    }
    // What a script needs, and no Java and no Docker of this machine's.
    for (const name of ['sh', 'mkdir', 'touch', 'tar', 'gzip']) {
      if (name in programs) continue;
      const real = execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim();
      await writeFile(join(bin, name), `#!/bin/sh\nexec ${real} "$@"\n`, { mode: 0o755 });
    }
    const env = { PATH: bin, XDG_CACHE_HOME: cache, HOME: folder };
    return { folder, cache: join(cache, 'backstop'), env };
  }

  const java = (version: string, more = 'jdk.compiler@1') =>
    `echo java.base@${version}; echo ${more}`;
  const noApt = 'echo "E: no network" >&2; exit 100';

  test.each([
    ['too old', java('8.0.1'), /java is Java 8\.0\.1, too old/],
    ['no compiler in it', java('21.0.1', 'jdk.jfr@21'), /java has no compiler: a JDK is needed/],
    ['broken', 'exit 3', /java does not run/],
  ])(
    'a Java that is no good (%s) is not taken, and the reason says so',
    async (_, body, reason) => {
      const { env } = await search({ java: body, 'apt-get': noApt });
      const found = await findDynamodb({ env, log: nowhere });
      expect(found).toEqual({ missing: expect.stringMatching(reason) });
      expect(found).toEqual({
        missing: expect.stringMatching(
          /no Docker engine answers: install Java 11 or newer.*set DYNAMODB_ENDPOINT$/s,
        ),
      });
    },
  );

  test('a package that is not what it was is not unpacked, and nothing is left', async () => {
    const { env, cache } = await search({
      java: java('17.0.1'),
      npm: 'echo evil > amplify-dynamodb-simulator-2.9.30.tgz',
    });
    const found = await findDynamodb({ env, log: nowhere });
    expect(found).toEqual({ missing: expect.stringMatching(/is not what it was: its sha256 is/) });
    expect(await readdir(cache)).toEqual([]);
  });

  test('without Java it is Docker, on loopback, with the data in the run folder', async () => {
    const { env, folder } = await search({
      'apt-get': noApt,
      docker: `[ "$1" = info ] && exit 0; echo "$@" > "${'$'}0.asked"; echo 'CorsParams: null'; exec sleep 60`,
      sleep: `exec ${execFileSync('sh', ['-c', 'command -v sleep'], { encoding: 'utf8' }).trim()} "$@"`,
    });
    const runDir = join(folder, 'run');
    await mkdir(runDir);
    const server = await startDynamodbIfAny({ runDir, env, log: nowhere });
    if ('missing' in server) throw new Error(server.missing);
    const asked = await readFile(join(folder, 'bin', 'docker.asked'), 'utf8');
    await server.close();
    expect(server.origin).toBe('DynamoDB Local, in Docker');
    expect(asked).toContain(`run --rm -p 127.0.0.1:${server.port}:8000`);
    expect(asked).toMatch(new RegExp(`-v ${runDir}/dynamodb-\\w+/data:/data`));
    expect(asked).toMatch(/-port 8000 -dbPath \/data -sharedDb/);
    expect(await readdir(runDir)).toEqual([]);
  });
});

describe.skipIf(!isHere)('in the whole service', slow, () => {
  test('its route answers 503 while it is away, and after it is back the retry is a replay', async () => {
    const scene = await startCopy();
    await until('DynamoDB is up', async () => (await health()).dynamodb === 'up', 60_000);
    const { url } = scene.instance;
    const award = async (key: string) => {
      const response = await fetch(`${url}/players/me/badges`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${localToken('alice')}`,
          'content-type': 'application/json',
          'idempotency-key': key,
        },
        body: '{"badge":"gold"}',
      });
      const json = (await response.json()) as Record<string, unknown>;
      return {
        status: response.status,
        json,
        replayed: response.headers.get('idempotency-replayed'),
      };
    };
    async function health() {
      const response = await fetch(`${scene.instance.url}/health`);
      return ((await response.json()) as { dependencies: Record<string, string> }).dependencies;
    }
    const first = await award('one');
    expect(first).toMatchObject({ status: 201, replayed: null, json: { badges: ['gold'] } });

    expect(await scene.control('stop', 'dynamodb')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^stopped dynamodb /),
    });
    expect(await health()).toMatchObject({ postgres: 'up', dynamodb: 'down' });
    for (const key of ['two', 'three']) {
      const away = await award(key);
      expect(away).toMatchObject({ status: 503, json: { code: 'UNAVAILABLE', retryable: true } });
      expect(away.json['detail']).toMatch(/^DynamoDB cannot be reached/);
    }

    expect((await scene.control('start', 'dynamodb')).code).toBe(0);
    // From the table and not from Redis, which knows nothing any more.
    expect((await scene.control('stop', 'redis')).code).toBe(0);
    expect(await award('one')).toEqual({ ...first, replayed: 'true' });
    expect(await award('two')).toMatchObject({ status: 201, json: { badges: ['gold', 'gold'] } });
    scene.start.child.kill('SIGTERM');
    expect(await scene.start.ended).toBe(0);
  });

  test('where there is none it says why, and the rest of the service is ready', async () => {
    // Somebody's own, which is down: the same to the service as one that cannot be had.
    const scene = await startCopy({ DYNAMODB_ENDPOINT: 'http://127.0.0.1:9' });
    expect(scene.start.stdout()).toMatch(
      /DynamoDB +http:\/\/127\.0\.0\.1:9\/ +\(from DYNAMODB_ENDPOINT\)/,
    );
    await until('it is told', () => /^no table backstop at /m.test(scene.start.stdout()), 60_000);
    const response = await fetch(`${scene.instance.url}/health`);
    expect([response.status, await response.json()]).toEqual([
      200,
      { status: 'degraded', dependencies: { postgres: 'up', redis: 'up', dynamodb: 'down' } },
    ]);
    expect(await scene.control('stop', 'dynamodb')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('dynamodb is your own (DYNAMODB_ENDPOINT)'),
    });
    scene.start.child.kill('SIGTERM');
    expect(await scene.start.ended).toBe(0);
  });
});

/** The whole service, ready, from a copy of this project. */
async function startCopy(more: Record<string, string> = {}) {
  const { copy, env, file } = await prepareCopy(more);
  const start: Program = runProgram(file('start.ts'), [], { env });
  onTestFinished(() => void start.child.kill('SIGKILL'));
  const ended = () => start.child.exitCode !== null;
  await until('ready, or the end', () => /^ready /m.test(start.stdout()) || ended(), 120_000);
  expect(start.stderr()).toBe('');
  const localFile = await readFile(join(copy.folder, '.backstop/local.json'), 'utf8');
  return {
    start,
    instance: JSON.parse(localFile) as LocalInstance,
    control: (...words: string[]) => programResult(file('control.ts'), words, { env }),
  };
}
