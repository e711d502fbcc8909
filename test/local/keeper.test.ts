import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Message } from '../../infra/local/keeper.ts';
import { startedAt } from '../../infra/local/process-table.ts';
import { runProgram } from './fixtures/program.ts';
import { until } from './fixtures/wait.ts';

const keeperFile = join(import.meta.dirname, '../../infra/local/keeper.ts');

test('a killed process leaves nothing of what it has started and made', async () => {
  const parent = runProgram(join(import.meta.dirname, 'fixtures/holding-program.ts'));
  onTestFinished(() => void parent.child.kill('SIGKILL'));
  await until('the program says what it holds', () => parent.stdout().includes('\n'));
  const { pid, folder } = JSON.parse(parent.stdout()) as { pid: number; folder: string };
  expect(startedAt(pid)).toBeDefined();
  expect(existsSync(folder)).toBe(true);

  parent.child.kill('SIGKILL');

  await until('the process is gone', () => startedAt(pid) === undefined);
  await until('the folder is gone', () => !existsSync(folder));
});

test('a process that only got the pid of an ended one is left alone', async () => {
  const bystander = spawnIdle();
  const { pid = 0 } = bystander;
  await keep({
    hold: 'a',
    what: { kind: 'process', pid, startedAt: 'another moment', signal: 'SIGKILL' },
  });
  expect(startedAt(pid)).toBeDefined();
});

test('a process that was released is left alone', async () => {
  const child = spawnIdle();
  const { pid = 0 } = child;
  const what = { kind: 'process', pid, startedAt: startedAt(pid), signal: 'SIGKILL' } as const;
  await keep({ hold: 'a', what }, { release: 'a' });
  expect(startedAt(pid)).toBeDefined();
  await keep({ hold: 'a', what });
  expect(startedAt(pid)).toBeUndefined();
});

test('a held file is removed, but not the one that has taken its place', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'backstop-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const path = join(folder, 'local.json');
  await writeFile(path, 'first');
  const first = (await stat(path)).ino;
  await writeFile(join(folder, 'other'), 'second');
  await rename(join(folder, 'other'), path);
  await keep({ hold: 'a', what: { kind: 'file', path, inode: first } });
  expect(existsSync(path)).toBe(true);
  await keep({ hold: 'a', what: { kind: 'file', path, inode: (await stat(path)).ino } });
  expect(existsSync(path)).toBe(false);
});

test('a folder whose name is not one of ours is never removed', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'precious-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await keep({ hold: 'a', what: { kind: 'folder', path: folder } });
  expect(existsSync(folder)).toBe(true);
});

function spawnIdle() {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { detached: true });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

/** The keeper's whole life: told these, its input closed, and ended. */
async function keep(...messages: Message[]): Promise<void> {
  const keeper = spawn(process.execPath, [keeperFile], { stdio: ['pipe', 'ignore', 'inherit'] });
  for (const message of messages) keeper.stdin.write(`${JSON.stringify(message)}\n`);
  keeper.stdin.end();
  const [code] = await once(keeper, 'exit');
  expect(code).toBe(0);
}
