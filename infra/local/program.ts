import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder } from './cache-folder.ts';
import { debianOrigin, debianRelease, fetchDebianPackages, libraryPath } from './debian-package.ts';
import type { Environment } from './environment.ts';
import { HANG_MS } from './process.ts';
import { removeFolder } from './run-folder.ts';

/** What a search for a program may use, and what ends it. */
export interface Search {
  readonly env: Environment;
  readonly log: (line: string) => void;
  readonly signal?: AbortSignal | undefined;
}

/** A program that runs here. */
export interface Program {
  readonly command: string;
  readonly env: Readonly<Record<string, string>>;
  readonly version: string;
  /** Where it came from, in words. */
  readonly from: string;
}

export interface Unavailable {
  /** Why there is none. */
  readonly unavailable: string;
}

export interface Wanted {
  /** What the cache folder and the log call it. */
  readonly name: string;
  /** On PATH, the best first. */
  readonly commands: readonly string[];
  /** Makes it print what `judge` reads. That also shows that it finds its libraries. */
  readonly args: readonly string[];
  /** Its version, or what is wrong with it ("is too old"). */
  judge(output: string): { version: string } | { fault: string };
  /** Sets of the distribution's packages; the first that can be had is taken. */
  readonly packages: readonly (readonly string[])[];
  /** Where it is once they are unpacked into `root`. */
  locate(root: string): string;
}

/** Finds a program on PATH, else fetches the distribution's own package, once, into a cache folder. */
export async function findProgram(wanted: Wanted, search: Search): Promise<Program | Unavailable> {
  const onPath = await findOnPath(wanted, search.env);
  if (!('unavailable' in onPath)) return onPath;
  const fetched = await fetchProgram(wanted, search).catch(({ message }: Error) => ({
    unavailable: message,
  }));
  if (!('unavailable' in fetched)) return fetched;
  return { unavailable: `${onPath.unavailable}; ${fetched.unavailable}` };
}

async function findOnPath(wanted: Wanted, env: Environment): Promise<Program | Unavailable> {
  const folders = (env.PATH ?? '').split(delimiter).filter(Boolean);
  const faults: string[] = [];
  for (const name of wanted.commands) {
    for (const command of folders.map((folder) => join(folder, name)).filter(existsSync)) {
      const found = await tryProgram(wanted, command, {}, 'on PATH');
      if (!('unavailable' in found)) return found;
      faults.push(found.unavailable);
    }
  }
  return { unavailable: faults.join('; ') || `no ${wanted.commands.join(' or ')} on PATH` };
}

async function fetchProgram(wanted: Wanted, search: Search): Promise<Program | Unavailable> {
  const { env, log, signal } = search;
  const release = debianRelease();
  if (release === undefined) {
    return { unavailable: 'no Debian or Ubuntu to fetch a package from' };
  }
  const root = join(cacheFolder(env), `${wanted.name.toLowerCase()}-${release}`);
  const tryFetched = () => {
    const libraries = { LD_LIBRARY_PATH: libraryPath(root) };
    return tryProgram(wanted, wanted.locate(root), libraries, debianOrigin(release));
  };
  if (existsSync(root)) {
    const cached = await tryFetched();
    if (!('unavailable' in cached)) return cached;
    await removeFolder(root);
  }
  log(`fetching ${wanted.name} from the distribution into a cache folder (once, some seconds)`);
  const faults = new Set<string>();
  for (const packages of wanted.packages) {
    try {
      await fetchDebianPackages(packages, root, env, signal);
      return await tryFetched();
    } catch (error) {
      faults.add((error as Error).message);
    }
  }
  return { unavailable: [...faults].join('; ') };
}

async function tryProgram(
  { args, judge }: Wanted,
  command: string,
  env: Readonly<Record<string, string>>,
  from: string,
): Promise<Program | Unavailable> {
  try {
    const options = { env: { ...env }, timeout: HANG_MS };
    const { stdout } = await promisify(execFile)(command, [...args], options);
    const seen = judge(stdout);
    if ('fault' in seen) return { unavailable: `${command} ${seen.fault}` };
    return { command, env, version: seen.version, from };
  } catch (error) {
    const [line] = (error as Error).message.split('\n').slice(-2);
    return { unavailable: `${command} does not run: ${line}` };
  }
}
