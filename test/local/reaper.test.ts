import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { signalledByKernel } from '../../infra/local/reaper.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import { runProgram } from './fixtures/program.ts';
import { isRunning, until } from './fixtures/wait.ts';

interface Held {
  readonly launched: number;
  readonly watched: number;
  readonly folder: string;
}

test('the processes of a killed program end, and the next one to start removes its folder', async () => {
  const temporary = await temporaryFolder();
  const killed = runProgram(join(import.meta.dirname, 'fixtures/holding-program.ts'), [], {
    env: { TMPDIR: temporary },
  });
  onTestFinished(() => void killed.child.kill('SIGKILL'));
  await until('the program says what it holds', () => killed.stdout().includes('\n'));
  const { launched, watched, folder } = JSON.parse(killed.stdout()) as Held;
  expect([launched, watched].map(isRunning)).toEqual([true, true]);
  // While it lives, others leave its folder alone.
  await (await createRunFolder(temporary)).remove();
  expect(existsSync(folder)).toBe(true);

  killed.child.kill('SIGKILL');

  await until('the launched process is gone', () => !isRunning(launched));
  await until('the watched process is gone', () => !isRunning(watched));
  await killed.ended;
  await (await createRunFolder(temporary)).remove();
  expect(existsSync(folder)).toBe(false);
});

test.runIf(process.platform === 'linux')(
  'a program does not start whose parent has ended before the signal was set',
  () => {
    const { command, args } = signalledByKernel({ command: 'echo', args: ['ran'] }, 'SIGKILL');
    const run = (words: readonly string[]) => spawnSync(command, words, { encoding: 'utf8' });
    expect(run(args)).toMatchObject({ status: 0, stdout: 'ran\n' });
    const ofAnother = args.map((word) => (word === String(process.pid) ? '1' : word));
    expect(run(ofAnother)).toMatchObject({ status: 1, stdout: '' });
  },
);

test('a folder that holds no dead socket is not removed, whatever its name', async () => {
  const temporary = await temporaryFolder();
  await mkdir(join(temporary, 'backstop-precious'));
  const living = await createRunFolder(temporary);
  await (await createRunFolder(temporary)).remove();
  expect(existsSync(join(temporary, 'backstop-precious'))).toBe(true);
  expect(existsSync(living.path)).toBe(true);
  await living.remove();
  expect(existsSync(living.path)).toBe(false);
});

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'backstop-test-'));
  // As root, other processes run as nobody.
  spawnSync('chmod', ['755', folder]);
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
