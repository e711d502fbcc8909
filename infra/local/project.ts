import { join, relative, resolve } from 'node:path';

/** The root of the repository that this file belongs to. */
export const PROJECT_FOLDER = resolve(import.meta.dirname, '..', '..');

const LOCAL_FOLDER = join(PROJECT_FOLDER, '.backstop');

export const paths = {
  localFolder: LOCAL_FOLDER,
  /** Where the running instance writes what it is and where it runs. */
  localFile: join(LOCAL_FOLDER, 'local.json'),
  /** Where `npm run services` leaves what the functions have to be told. */
  envFile: join(LOCAL_FOLDER, 'services.env'),
  apiLog: join(LOCAL_FOLDER, 'api.log'),
} as const;

/** A path as someone who stands in the project's folder would type it. */
export function shown(path: string): string {
  return relative(PROJECT_FOLDER, path);
}
