import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { statSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { hold } from './keeping.ts';
import type { Identity } from './process.ts';

export type RunFolder = { path: string; remove(): Promise<void> };

/**
 * Makes a folder for one run, below the system's folder for temporary files. Everyone may pass
 * through it (as root, Postgres runs as nobody), so what must stay private needs its own mode.
 * The keeper removes it if this process cannot.
 */
export async function createRunFolder(): Promise<RunFolder> {
  const path = join(temporaryFolder(), `backstop-${randomUUID().slice(0, 13)}`);
  const held = hold({ kind: 'folder', path });
  await mkdir(path);
  await chmod(path, 0o755);
  return {
    path,
    remove: async () => {
      await rm(path, {
        recursive: true,
        force: true,
        maxRetries: 20,
        retryDelay: 50,
      });
      await held.release();
    },
  };
}

/** A new folder inside the run folder for one server; everyone may pass through it as well. */
export async function createServerFolder(runDir: string, name: string): Promise<string> {
  const path = await mkdtemp(join(runDir, `${name}-`));
  await chmod(path, 0o755);
  return path;
}

/** Whether every user can reach this file or folder: each folder above it, and it itself. */
export function everyoneReaches(path: string): boolean {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return false;
  const needed = stats.isDirectory() ? 0o001 : 0o004;
  if ((stats.mode & needed) === 0) return false;
  const parent = dirname(resolve(path));
  return parent === resolve(path) || everyoneReaches(parent);
}

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** The user to give way to when root: Postgres refuses to run as root. No account is created. */
export function unprivilegedIdentity(): Identity | undefined {
  if (!isRoot()) return undefined;
  const id = (flag: string) => Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

function temporaryFolder(): string {
  const usual = tmpdir();
  if (!isRoot() || everyoneReaches(usual)) return usual;
  return ['/tmp', '/var/tmp'].find(everyoneReaches) ?? usual;
}
