import { existsSync, readFileSync } from 'node:fs';
import { mkdir, readdir, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { isAbsolute, join, relative } from 'node:path';
import { fetchInto } from './cache-folder.ts';
import type { Environment } from './environment.ts';

const DPKG_STATUS = '/var/lib/dpkg/status';

/** A Debian or Ubuntu, as a name for what was built for it: `debian-12-x64`. Else undefined. */
export function debianRelease(): string | undefined {
  if (process.platform !== 'linux' || !existsSync(DPKG_STATUS)) return undefined;
  try {
    const text = readFileSync('/etc/os-release', 'utf8');
    const value = (name: string) => new RegExp(`^${name}="?([\\w.-]+)"?$`, 'm').exec(text)?.[1];
    return `${value('ID')}-${value('VERSION_ID') ?? value('VERSION_CODENAME')}-${process.arch}`;
  } catch {
    return undefined;
  }
}

/** Where a package came from, in words. */
export function debianOrigin(release: string): string {
  return `from the ${release.replace(/-[^-]*$/, '').replace('-', ' ')} package`;
}

/** Where programs that were unpacked into `root` find the libraries that were unpacked with them. */
export function libraryPath(root: string): string {
  const triplets: Record<string, string> = { x64: 'x86_64', arm64: 'aarch64' };
  const triplet = `${triplets[process.arch] ?? process.arch}-linux-gnu`;
  return [join(root, 'usr', 'lib', triplet), join(root, 'lib', triplet)].join(':');
}

/**
 * Fetches packages, and what they need that this machine lacks, from the distribution that it
 * runs, and unpacks them into `target` without installing anything: no root, no change to the
 * system. apt checks the signatures as ever.
 *
 * @param signal gives the download up.
 */
export async function fetchDebianPackages(
  names: readonly string[],
  target: string,
  env: Environment,
  signal?: AbortSignal,
): Promise<void> {
  await fetchInto(target, { env, signal }, async (folder, run) => {
    const [root, archives] = [join(folder, 'root'), join(folder, 'cache', 'archives')];
    for (const made of [
      root,
      join(archives, 'partial'),
      join(folder, 'state', 'lists', 'partial'),
    ]) {
      await mkdir(made, { recursive: true });
    }
    const config = join(folder, 'apt.conf');
    await writeFile(config, aptConfiguration(folder));
    const apt = (...args: string[]) => run('apt-get', '-c', config, '-q', '-y', ...args);
    await apt('update');
    // `install --download-only` rather than `download`: against the list of what is installed, it
    // fetches exactly the libraries that are missing, whatever this release calls them.
    await apt('install', '--download-only', '--no-install-recommends', '--reinstall', ...names);
    for (const name of await readdir(archives)) {
      if (name.endsWith('.deb')) await run('dpkg-deb', '-x', join(archives, name), root);
    }
    await keepLinksInside(root);
    return root;
  });
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
Dir::State::status "${DPKG_STATUS}";
Debug::NoLocking "1";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::http::Timeout "10";
Acquire::https::Timeout "10";
`;
}

/** A link to an absolute path means the place where it would be installed: here, below `root`. */
async function keepLinksInside(root: string): Promise<void> {
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isSymbolicLink()) continue;
    const path = join(entry.parentPath, entry.name);
    const target = await readlink(path);
    if (!isAbsolute(target) || !existsSync(join(root, target))) continue;
    await rm(path);
    await symlink(relative(entry.parentPath, join(root, target)), path);
  }
}
