import { randomUUID } from 'node:crypto';
import { link, mkdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type LocalInstance, readLocalFile, runningInstance } from './control-client.ts';
import { type Hold, hold } from './keeping.ts';
import { paths } from './project.ts';

export type LocalFile = {
  write(instance: LocalInstance): Promise<void>;
  remove(): Promise<void>;
};

/**
 * Makes this process the one instance of this folder, by the file that says so: whoever creates it
 * first. Answers with the other instance when there is one that lives.
 */
export async function claimLocalFile(
  instance: LocalInstance,
): Promise<LocalFile | { other: LocalInstance }> {
  await mkdir(paths.localFolder, { recursive: true });
  let held: Hold | undefined;
  const keep = async (inode: number) => {
    const before = held;
    held = hold({ kind: 'file', path: paths.localFile, inode });
    await before?.release();
  };
  for (;;) {
    const draft = await writeDraft(instance);
    try {
      // A link fails where a file is already, and what it makes is complete from the first moment.
      await link(draft.path, paths.localFile);
      await keep(draft.inode);
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    } finally {
      await rm(draft.path, { force: true });
    }
    const other = await runningInstance();
    if (other !== undefined) return { other };
    await rm(paths.localFile, { force: true });
  }
  return {
    write: async (changed) => {
      const draft = await writeDraft(changed);
      await keep(draft.inode);
      await rename(draft.path, paths.localFile);
    },
    remove: async () => {
      const written = await readLocalFile();
      if (written?.control === instance.control) await rm(paths.localFile, { force: true });
      await held?.release();
    },
  };
}

/** Private, since DATABASE_URL may hold a password. */
async function writeDraft(instance: LocalInstance): Promise<{ path: string; inode: number }> {
  const path = join(paths.localFolder, `local-${randomUUID()}.json`);
  await writeFile(path, `${JSON.stringify(instance, undefined, 2)}\n`, {
    mode: 0o600,
  });
  return { path, inode: (await stat(path)).ino };
}
