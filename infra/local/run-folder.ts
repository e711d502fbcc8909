import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { Identity } from './process.ts';

export interface RunFolder {
  readonly path: string;
  /** A socket in it, which only this user can open and which is dead once this process is. */
  readonly socketPath: string;
  readonly listener: Server;
  remove(): Promise<void>;
}

const PREFIX = 'backstop-';
const SOCKET = 'alive';

/**
 * Makes a folder for one run. Everyone may pass through it (as root, Postgres runs as nobody), so
 * what must stay private needs its own mode. Should this process be killed, the next one that makes
 * a run folder removes it.
 *
 * @param parent default: the system's folder for temporary files.
 */
export async function createRunFolder(parent = temporaryFolder()): Promise<RunFolder> {
  await removeStaleFolders(parent);
  const path = join(parent, `${PREFIX}${randomUUID().slice(0, 13)}`);
  await mkdir(path, { mode: 0o700 });
  const socketPath = join(path, SOCKET);
  const listener = createServer((socket) => void socket.on('error', () => {}).resume());
  listener.listen(`${socketPath}.new`);
  await once(listener, 'listening');
  listener.unref();
  await chmod(`${socketPath}.new`, 0o600);
  // Under its name it takes connections from the first moment: one that refuses them is a dead one.
  await rename(`${socketPath}.new`, socketPath);
  await chmod(path, 0o755);
  const remove = async () => {
    listener.close();
    await removeFolder(path);
  };
  return { path, socketPath, listener, remove };
}

/** With all that it holds. A killed server's helpers may still write for a moment: hence the retries. */
export async function removeFolder(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
}

async function removeStaleFolders(parent: string): Promise<void> {
  const names = (await readdir(parent)).filter((name) => name.startsWith(PREFIX));
  await Promise.all(
    names.map(async (name) => {
      if (await isStale(join(parent, name))) await removeFolder(join(parent, name)).catch(() => {});
    }),
  );
}

/** Whether it is this user's and has a socket on which nobody listens any more. */
async function isStale(folder: string): Promise<boolean> {
  const socket = await stat(join(folder, SOCKET)).catch(() => undefined);
  if (socket?.isSocket() !== true || socket.uid !== process.getuid?.()) return false;
  return (await connectionError(join(folder, SOCKET))) === 'ECONNREFUSED';
}

/** The code of the error with which a connection fails; undefined when somebody listens. */
export function connectionError(socketPath: string): Promise<string | undefined> {
  return new Promise((done) => {
    const socket = connect(socketPath);
    socket.on('error', (error: NodeJS.ErrnoException) => done(error.code ?? error.message));
    socket.on('connect', () => done(void socket.destroy()));
  });
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
