import { createHash, randomUUID } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { cacheFolder } from './cache-folder.ts';
import type { Environment } from './environment.ts';
import { hold } from './keeping.ts';
import { runToEnd } from './process.ts';

/** What a search for a program may use, and what ends it. */
export type Search = {
  env: Environment;
  log: (line: string) => void;
  signal?: AbortSignal | undefined;
};

/** DynamoDB Local unpacked: its jar, and the libraries in `DynamoDBLocal_lib`. */
export type DynamodbJar = { folder: string; version: string };

/**
 * The npm package that DynamoDB Local's jar comes in. Only its tarball is fetched, at first use: as
 * a dependency it would bring a large tree, and 57 MB to everyone.
 */
const tarball = {
  spec: 'amplify-dynamodb-simulator@2.9.30',
  sha256: '3503ffac19f183407909fecdacf4db51ab1fdad1da7b2f177016670b2d80e4b9',
  holds: '1.25.1',
};

/** From the cache folder, where it is put if it is not there yet. Any number at once is safe. */
export async function dynamodbLocalJar({ env, log, signal }: Search): Promise<DynamodbJar> {
  const cache = cacheFolder(env);
  const folder = join(cache, `dynamodb-local-${tarball.holds}`);
  if (!existsSync(folder)) {
    log('fetching DynamoDB Local from npm into a cache folder (once, 57 MB)');
    await fetchInto(folder, cache, { env, signal });
  }
  return { folder, version: tarball.holds };
}

/** In a folder of its own; a rename then decides who was first. */
async function fetchInto(
  folder: string,
  cache: string,
  { env, signal }: Pick<Search, 'env' | 'signal'>,
): Promise<void> {
  const work = join(cache, `backstop-fetch-${randomUUID()}`);
  const held = hold({ kind: 'folder', path: work });
  try {
    await mkdir(work);
    const logFile = join(work, 'log');
    const run = (command: string, args: readonly string[]) =>
      runToEnd({ command, args, env, cwd: work, logFile, signal });
    await run('npm', ['pack', '--silent', '--ignore-scripts', tarball.spec]);
    const file = (await readdir(work)).find((name) => name.endsWith('.tgz')) ?? 'nothing';
    await insistOnSha256(join(work, file));
    await run('tar', ['-xzf', file]);
    await rename(join(work, 'package', 'emulator'), folder).catch((error: Error) => {
      // Another was quicker: what it put there is the same.
      if (!existsSync(folder)) throw error;
    });
  } finally {
    await rm(work, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
    await held.release();
  }
}

async function insistOnSha256(file: string): Promise<void> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  const seen = hash.digest('hex');
  if (seen !== tarball.sha256) {
    throw new Error(`${tarball.spec} is not what it was: its sha256 is ${seen}`);
  }
}
