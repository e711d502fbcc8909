import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { cacheFolder } from './cache-folder.ts';
import { runToEnd } from './process.ts';
import type { Search } from './program.ts';
import { createRunFolder } from './run-folder.ts';

/** DynamoDB Local unpacked: its jar, and the libraries in `DynamoDBLocal_lib`. */
export interface DynamodbJar {
  readonly folder: string;
  readonly version: string;
}

/**
 * The npm package that DynamoDB Local's jar comes in. Only its tarball is fetched, at first use: as
 * a dependency it would bring a large tree, and 57 MB to everyone.
 */
const TARBALL = {
  spec: 'amplify-dynamodb-simulator@2.9.30',
  sha256: '3503ffac19f183407909fecdacf4db51ab1fdad1da7b2f177016670b2d80e4b9',
  holds: '1.25.1',
};

/** From the cache folder, where it is put if it is not there yet. Any number at once is safe. */
export async function dynamodbLocalJar({ env, log, signal }: Search): Promise<DynamodbJar> {
  const cache = cacheFolder(env);
  const folder = join(cache, `dynamodb-local-${TARBALL.holds}`);
  if (!existsSync(folder)) {
    log('fetching DynamoDB Local from npm into a cache folder (once, 57 MB)');
    await fetchInto(folder, cache, { env, signal });
  }
  return { folder, version: TARBALL.holds };
}

/** In a folder of its own; a rename then decides who was first. */
async function fetchInto(
  folder: string,
  cache: string,
  { env, signal }: Pick<Search, 'env' | 'signal'>,
): Promise<void> {
  const work = await createRunFolder(cache);
  const logFile = join(work.path, 'log');
  const run = (command: string, args: readonly string[]) =>
    runToEnd({ command, args, env, cwd: work.path, logFile, signal });
  try {
    await run('npm', ['pack', '--silent', '--ignore-scripts', TARBALL.spec]);
    const file = (await readdir(work.path)).find((name) => name.endsWith('.tgz')) ?? 'nothing';
    await checkSha256(join(work.path, file));
    await run('tar', ['-xzf', file]);
    await rename(join(work.path, 'package', 'emulator'), folder).catch((error: Error) => {
      // Another was quicker: what it put there is the same.
      if (!existsSync(folder)) throw error;
    });
  } finally {
    await work.remove();
  }
}

async function checkSha256(file: string): Promise<void> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  const seen = hash.digest('hex');
  if (seen !== TARBALL.sha256) {
    throw new Error(`${TARBALL.spec} is not what it was: its sha256 is ${seen}`);
  }
}
