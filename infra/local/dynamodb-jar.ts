import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { cacheFolder, fetchInto } from './cache-folder.ts';
import type { Search } from './program.ts';

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

/** From the cache folder, where it is put if it is not there yet. */
export async function dynamodbLocalJar(search: Search): Promise<DynamodbJar> {
  const target = join(cacheFolder(search.env), `dynamodb-local-${TARBALL.holds}`);
  if (!existsSync(target)) {
    search.log('fetching DynamoDB Local from npm into a cache folder (once, 57 MB)');
    await fetchInto(target, search, async (folder, run) => {
      await run('npm', 'pack', '--silent', '--ignore-scripts', TARBALL.spec);
      const file = (await readdir(folder)).find((name) => name.endsWith('.tgz')) ?? 'nothing';
      await checkSha256(join(folder, file));
      await run('tar', '-xzf', file);
      return join(folder, 'package', 'emulator');
    });
  }
  return { folder: target, version: TARBALL.holds };
}

async function checkSha256(file: string): Promise<void> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  const seen = hash.digest('hex');
  if (seen !== TARBALL.sha256) {
    throw new Error(`${TARBALL.spec} is not what it was: its sha256 is ${seen}`);
  }
}
