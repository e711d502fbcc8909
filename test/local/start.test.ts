import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { LocalInstance } from '../../infra/local/control-client.ts';
import { isFree } from '../../infra/local/ports.ts';
import { prepareCopy } from './fixtures/prepared-copy.ts';
import { type Program, programResult, runProgram } from './fixtures/program.ts';
import { until } from './fixtures/wait.ts';

const slow = { timeout: 180_000 };

test('start, stop and start a part, end by SIGTERM: nothing is left', slow, async () => {
  const scene = await prepare();
  const start = await scene.startReady();
  const instance = await scene.localFile();
  const control = (...words: string[]) =>
    programResult(scene.file('control.ts'), words, { env: scene.env });

  const second = await programResult(scene.file('start.ts'), [], { env: scene.env });
  expect(second).toEqual({
    code: 2,
    stdout: '',
    stderr: `already running from this folder: ${instance.url} (pid ${start.child.pid})\n`,
  });

  const stopped = await control('stop', 'redis');
  expect(stopped).toMatchObject({ code: 0, stdout: expect.stringMatching(/^stopped redis /) });
  expect(await health(instance)).toMatchObject({ status: 'degraded' });
  expect(await control('stop', 'redis')).toMatchObject({
    stdout: expect.stringMatching(/^redis was stopped already/),
  });
  const started = await control('start', 'redis');
  expect(started).toMatchObject({ code: 0, stdout: expect.stringMatching(/^started redis /) });
  await until('Redis is up again', async () => (await health(instance)).status === 'ok');

  const postgres = await control('stop', 'postgres');
  expect(postgres).toMatchObject({ code: 0, stdout: expect.stringMatching(/^stopped postgres /) });
  expect(await health(instance)).toMatchObject({ status: 'down' });
  expect((await control('start', 'postgres')).code).toBe(0);
  await until('Postgres is up again', async () => (await health(instance)).status === 'ok');

  start.child.kill('SIGTERM');
  expect(await start.ended).toBe(0);
  expect(scene.left()).toEqual({ processes: [], folders: [], localFile: false });
  expect(await isFree(Number(new URL(instance.url).port))).toBe(true);
});

test('killed without a word, it leaves nothing all the same', slow, async () => {
  const scene = await prepare();
  const start = await scene.startReady();
  const { port } = new URL((await scene.localFile()).url);
  start.child.kill('SIGKILL');
  await until('everything is gone', () => scene.isClean() && !existsSync(scene.localPath), 30_000);
  expect(await isFree(Number(port))).toBe(true);
});

test('a part that dies is told in a line, and the others go on', slow, async () => {
  const scene = await prepare();
  const start = await scene.startReady();
  const instance = await scene.localFile();
  const redis = scene
    .processes()
    .find((line) => line.includes('redis-server') || line.includes('valkey'));
  process.kill(Number.parseInt(redis ?? '', 10), 'SIGKILL');
  await until('it is told', () => start.stdout().includes('redis was ended by SIGKILL'));
  expect(await health(instance)).toMatchObject({ status: 'degraded' });
  start.child.kill('SIGINT');
  expect(await start.ended).toBe(0);
  expect(scene.left()).toEqual({ processes: [], folders: [], localFile: false });
});

test('interrupted half-way, it leaves nothing', slow, async () => {
  const scene = await prepare();
  const start = scene.start();
  await until('the servers are starting', () => scene.processes().length > 2);
  start.child.kill('SIGINT');
  expect(await start.ended).toBe(0);
  expect(start.stderr()).toBe('');
  expect(start.stdout()).not.toContain('brings it back');
  expect(scene.left()).toEqual({ processes: [], folders: [], localFile: false });
});

test('a start that fails says why, ends with 1 and leaves nothing', slow, async () => {
  const scene = await prepare();
  const env = { ...scene.env, DATABASE_URL: 'postgres://me:secret@127.0.0.1:1/none' };
  const result = await programResult(scene.file('start.ts'), [], { env });
  expect(result).toMatchObject({ code: 1, stderr: expect.stringContaining('ECONNREFUSED') });
  expect(result.stdout + result.stderr).not.toContain('secret');
  expect(scene.left()).toEqual({ processes: [], folders: [], localFile: false });
});

test('a port that is taken is refused before anything starts', slow, async () => {
  const scene = await prepare();
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await until('it listens', () => server.listening);
  const { port } = server.address() as { port: number };
  const env = { ...scene.env, PORT: String(port) };
  const result = await programResult(scene.file('start.ts'), [], { env });
  expect(result).toMatchObject({ code: 2, stdout: '' });
  expect(result.stderr).toContain(`port ${port} is taken`);
  const word = await programResult(scene.file('start.ts'), [], {
    env: { ...scene.env, PORT: 'http' },
  });
  expect(word).toMatchObject({ code: 2, stderr: 'PORT=http is not a port\n' });
});

async function health({ url }: LocalInstance): Promise<{ status: string }> {
  return (await fetch(`${url}/health`)).json() as Promise<{ status: string }>;
}

/** A project, and a folder for temporary files, that are this test's alone. */
async function prepare() {
  const { copy, temporary, env, file } = await prepareCopy();
  const localPath = join(copy.folder, '.backstop/local.json');
  const processes = () => processesMentioning(copy.folder);
  const folders = () => readdirSync(temporary);
  const start = () => {
    const program = runProgram(file('start.ts'), [], { env });
    onTestFinished(() => void program.child.kill('SIGKILL'));
    return program;
  };
  return {
    env,
    file,
    localPath,
    processes,
    start,
    startReady: async (): Promise<Program> => {
      const program = start();
      const ended = () => program.child.exitCode !== null;
      await until('ready, or the end', () => /^ready /m.test(program.stdout()) || ended(), 120_000);
      expect(program.stderr()).toBe('');
      return program;
    },
    localFile: async () => JSON.parse(await readFile(localPath, 'utf8')) as LocalInstance,
    left: () => ({
      processes: processes(),
      folders: folders(),
      localFile: existsSync(localPath),
    }),
    isClean: () => processes().length === 0 && folders().length === 0,
  };
}

/**
 * `pid command (folder)`, of those that live and whose command, or current folder, holds the text.
 * One whose command stands in brackets has been killed and has given its memory back already.
 */
function processesMentioning(text: string): string[] {
  const all = execFileSync('ps', ['-axww', '-o', 'pid=,state=,command='], { encoding: 'utf8' });
  return all
    .split('\n')
    .map((line) => /^\s*(\d+)\s+([^Z\s]\S*)\s+(.*)$/.exec(line))
    .filter((found) => found !== null)
    .filter(([, , , command]) => !/^\[.*\]$/.test(command ?? ''))
    .map(([, pid, , command]) => `${pid} ${command} (${currentFolder(pid)})`)
    .filter((line) => line.includes(text));
}

function currentFolder(pid: string | undefined): string {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return 'not known';
  }
}
