import { join, relative, resolve } from 'node:path';

/** The root of the repository that this file belongs to. */
export const projectFolder = resolve(import.meta.dirname, '..', '..');

const localFolder = join(projectFolder, '.backstop');

export const paths = {
  localFolder,
  /** Where the running instance writes what it is and where it runs. */
  localFile: join(localFolder, 'local.json'),
  apiLog: join(localFolder, 'api.log'),
} as const;

/** A path as someone who stands in the project's folder would type it. */
export function shown(path: string): string {
  return relative(projectFolder, path);
}
