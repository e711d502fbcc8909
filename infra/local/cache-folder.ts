import { accessSync, constants, lstatSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import type { Environment } from './environment.ts';

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
