import { readFile } from 'node:fs/promises';
import { request } from 'node:http';
import { hangMs } from './process.ts';
import { paths } from './project.ts';

/** What the running instance says of itself in `.backstop/local.json`. */
export type LocalInstance = {
  pid: number;
  /** `starting` until the API answers; the addresses of the parts come with `ready`. */
  state: 'starting' | 'ready';
  url: string;
  /** The unix socket that takes commands. */
  control: string;
  log: string;
  /** The API's role, the purge's, and the one that migrates. */
  databaseUrl?: string;
  purgeDatabaseUrl?: string;
  adminDatabaseUrl?: string;
  redisUrl?: string;
  dynamodbEndpoint?: string;
  dynamodbTable?: string;
};

export type ControlAnswer = { status: number; message: string };

/**
 * The instance that runs from this folder, or undefined. Asked over its socket: the file and its
 * pid may be left from one that was killed, and the pid belong to another by now.
 */
export async function runningInstance(): Promise<LocalInstance | undefined> {
  const written = await readLocalFile();
  if (written === undefined) return undefined;
  const answer = await askControl(written.control, 'GET', '/').catch(() => undefined);
  return answer === undefined ? undefined : (JSON.parse(answer.message) as LocalInstance);
}

/** What the file says, whether or not it still holds. */
export async function readLocalFile(): Promise<LocalInstance | undefined> {
  try {
    return JSON.parse(await readFile(paths.localFile, 'utf8')) as LocalInstance;
  } catch {
    return undefined;
  }
}

/** Rejects when nobody listens. A stop may take some seconds, and an answer comes when it is done. */
export function askControl(
  socketPath: string,
  method: 'GET' | 'POST',
  path: string,
): Promise<ControlAnswer> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, method, path, timeout: hangMs }, async (response) => {
      try {
        const message = Buffer.concat(await response.toArray()).toString('utf8');
        resolve({ status: response.statusCode ?? 500, message });
      } catch (error) {
        reject(error);
      }
    });
    asked.on('timeout', () => asked.destroy(new Error(`no answer within ${hangMs / 1000} s`)));
    asked.on('error', reject);
    asked.end();
  });
}
