import { accessSync, constants, existsSync, lstatSync, mkdirSync } from 'node:fs';
import { rename } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';
import type { Environment } from './environment.ts';
import { runToEnd } from './process.ts';
import { createRunFolder } from './run-folder.ts';

/**
 * The folder for what is fetched once: `backstop` below $XDG_CACHE_HOME or ~/.cache, or one's own
 * below the folder for temporary files when there is no home that can be written to.
 */
export function cacheFolder(env: Environment): string {
  const { XDG_CACHE_HOME: xdg, HOME: home } = env;
  const usual =
    xdg !== undefined && isAbsolute(xdg) ? xdg : home !== undefined ? join(home, '.cache') : '';
  const uid = process.getuid?.() ?? 0;
  const candidates = [join(usual, 'backstop'), join(tmpdir(), `backstop-cache-${uid}`)];
  const found = candidates.filter(isAbsolute).find((path) => isOurs(path, uid));
  if (found === undefined) throw new Error(`no folder to keep downloads in: ${candidates}`);
  return found;
}

/** Made if need be, and nobody else's: programs are run from it, and /tmp is open to everyone. */
function isOurs(path: string, uid: number): boolean {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    accessSync(path, constants.W_OK | constants.X_OK);
    const { uid: owner, mode } = lstatSync(path);
    return owner === uid && (mode & 0o022) === 0;
  } catch {
    return false;
  }
}

export type RunThere = (command: string, ...args: string[]) => Promise<void>;

/**
 * Puts at `target` what `make` answers with, which works in a folder of its own and runs programs there.
 * They get the developer's own variables, since these may name a proxy. Any number at once is safe: a
 * rename decides, and what another that was quicker has put there is the same.
 */
export async function fetchInto(
  target: string,
  { env, signal }: { env: Environment; signal?: AbortSignal | undefined },
  make: (folder: string, run: RunThere) => Promise<string>,
): Promise<void> {
  const folder = await createRunFolder(dirname(target));
  const { path } = folder;
  // What a program writes for itself is removed also when it is killed.
  const own = { LC_ALL: 'C', DEBIAN_FRONTEND: 'noninteractive', TMPDIR: path };
  const common = { cwd: path, env: { ...env, ...own }, logFile: join(path, 'log'), signal };
  try {
    await rename(
      await make(path, (command, ...args) => runToEnd({ ...common, command, args })),
      target,
    );
  } catch (error) {
    if (!existsSync(target)) throw error;
  } finally {
    await folder.remove();
  }
}
