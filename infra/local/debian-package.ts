import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Environment } from './environment.ts';
import { hold } from './keeping.ts';
import { runToEnd } from './process.ts';

/** A Debian or Ubuntu, as a name for what was built for it: `debian-12-x64`. Else undefined. */
export function debianRelease(): string | undefined {
  if (process.platform !== 'linux' || !existsSync(dpkgStatus)) return undefined;
  try {
    const text = readFileSync('/etc/os-release', 'utf8');
    const value = (name: string) => new RegExp(`^${name}="?([\\w.-]+)"?$`, 'm').exec(text)?.[1];
    return `${value('ID')}-${value('VERSION_ID') ?? value('VERSION_CODENAME')}-${process.arch}`;
  } catch {
    return undefined;
  }
}

const dpkgStatus = '/var/lib/dpkg/status';
const aptBoundMs = 120_000;
const unpackBoundMs = 30_000;

/**
 * Fetches packages, and what they need that this machine lacks, from the distribution that it
 * runs, and unpacks them into `target` without installing anything: no root, no change to the
 * system. apt checks the signatures as ever.
 *
 * Any number at once is safe: each works in a folder of its own, and a rename decides.
 */
export async function fetchDebianPackages(
  names: readonly string[],
  target: string,
  env: Environment,
): Promise<void> {
  const work = join(target, '..', `backstop-fetch-${randomUUID()}`);
  const held = hold({ kind: 'folder', path: work });
  try {
    await mkdir(join(work, 'state', 'lists', 'partial'), { recursive: true });
    await mkdir(join(work, 'cache', 'archives', 'partial'), {
      recursive: true,
    });
    await mkdir(join(work, 'root'));
    await mkdir(join(work, 'tmp'));
    await download(names, work, env);
    await unpack(work, env);
    await putInPlace(join(work, 'root'), target);
  } finally {
    await rm(work, {
      recursive: true,
      force: true,
      maxRetries: 20,
      retryDelay: 50,
    });
    await held.release();
  }
}

async function download(names: readonly string[], work: string, env: Environment): Promise<void> {
  const config = join(work, 'apt.conf');
  await writeFile(config, aptConfiguration(work));
  const apt = (...args: string[]) =>
    runToEnd({
      command: 'apt-get',
      args: ['-c', config, '-q', '-y', ...args],
      // The developer's own variables, since they may name a proxy; but what apt writes for itself
      // goes where it is removed also when apt is killed.
      env: { ...env, LC_ALL: 'C', DEBIAN_FRONTEND: 'noninteractive', TMPDIR: join(work, 'tmp') },
      cwd: work,
      logFile: join(work, 'apt.log'),
      boundMs: aptBoundMs,
    });
  await apt('update');
  // `install --download-only` rather than `download`: against the list of what is installed, it
  // fetches exactly the libraries that are missing, whatever this release calls them.
  await apt('install', '--download-only', '--no-install-recommends', '--reinstall', ...names);
}

/** Private folders for all that apt writes; the system's sources and list of what is installed. */
function aptConfiguration(work: string): string {
  return `
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
Dir::State "${work}/state";
Dir::Cache "${work}/cache";
Dir::State::status "${dpkgStatus}";
Debug::NoLocking "1";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::http::Timeout "10";
Acquire::https::Timeout "10";
`;
}

async function unpack(work: string, env: Environment): Promise<void> {
  const archives = join(work, 'cache', 'archives');
  for (const name of await readdir(archives)) {
    if (!name.endsWith('.deb')) continue;
    await runToEnd({
      command: 'dpkg-deb',
      args: ['-x', join(archives, name), join(work, 'root')],
      env,
      cwd: work,
      logFile: join(work, 'unpack.log'),
      boundMs: unpackBoundMs,
    });
  }
}

/** A caller that was quicker keeps its place: what it put there is the same. */
async function putInPlace(made: string, target: string): Promise<void> {
  try {
    await rename(made, target);
  } catch (error) {
    if (!existsSync(target)) throw error;
  }
}
