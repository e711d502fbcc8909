import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { findDynamodb } from '../../infra/local/dynamodb.ts';
import { environment } from '../../infra/local/environment.ts';
import { startServices } from '../../infra/local/services.ts';
import { dynamodbUrl } from '../support/dynamodb.ts';
import { until } from './fixtures/wait.ts';

// Once that of the whole run is there, another can be had, and nothing has to be fetched.
const isHere = (await dynamodbUrl()) !== undefined;

test.skipIf(!isHere)(
  'nobody waits for DynamoDB, and nothing of it is left when it is closed before it is there',
  async () => {
    const others = { DATABASE_URL: 'postgres://d.example/x', REDIS_URL: 'redis://r.example' };
    const env = { ...environment(), ...others, DYNAMODB_ENDPOINT: undefined };

    const lines: string[] = [];
    const services = await startServices({ env, log: (line) => lines.push(line) });
    const { dynamodb, runDir } = services;
    if (dynamodb.from !== 'starting') throw new Error(dynamodb.from);
    await until('it is being started', async () =>
      (await readdir(runDir)).some((name) => name.startsWith('dynamodb-')),
    );
    await services.close();
    expect(await dynamodb.settled).toMatchObject({ from: 'nowhere' });
    expect(existsSync(runDir)).toBe(false);
    expect(lines).toEqual([]);
    await expect(fetch(dynamodb.url)).rejects.toThrow();
  },
);

describe('where DynamoDB comes from', () => {
  const nowhere = () => {};

  async function search(programs: Record<string, string>) {
    const folder = await mkdtemp(join(tmpdir(), 'backstop-test-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const bin = join(folder, 'bin');
    const cache = join(folder, 'cache');
    await mkdir(bin);
    await mkdir(cache);
    for (const [name, body] of Object.entries(programs)) {
      await writeFile(join(bin, name), `#!/bin/sh\n${body}\n`);
      await chmod(join(bin, name), 0o755);
    }
    // What a script needs, and no Java and no Docker of this machine's.
    for (const name of ['sh', 'mkdir', 'touch', 'tar', 'gzip']) {
      if (name in programs) continue;
      const real = execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim();
      await writeFile(join(bin, name), `#!/bin/sh\nexec ${real} "$@"\n`, { mode: 0o755 });
    }
    const env = { PATH: bin, XDG_CACHE_HOME: cache, HOME: folder };
    return { folder, cache: join(cache, 'backstop'), env };
  }

  const java = (version: string, more = 'jdk.compiler@1') =>
    `echo java.base@${version}; echo ${more}`;
  const noApt = 'echo "E: no such package" >&2; exit 100';

  test.each([
    ['too old', java('8.0.1'), /java is Java 8\.0\.1, too old/],
    ['no compiler in it', java('21.0.1', 'jdk.jfr@21'), /java has no compiler: a JDK is needed/],
    ['broken', 'exit 3', /java does not run/],
  ])(
    'a Java that is no good (%s) is not taken, and the reason says so',
    async (_, body, reason) => {
      const { env } = await search({ java: body, 'apt-get': noApt });
      const found = await findDynamodb({ env, log: nowhere });
      expect(found).toEqual({ unavailable: expect.stringMatching(reason) });
      expect(found).toEqual({
        unavailable: expect.stringMatching(
          /no such package: install Java 11 or newer.*set DYNAMODB_ENDPOINT$/s,
        ),
      });
    },
  );

  test('a package that is not what it was is not unpacked, and nothing is left', async () => {
    const { env, cache } = await search({
      java: java('17.0.1'),
      npm: 'echo evil > amplify-dynamodb-simulator-2.9.30.tgz',
    });
    const found = await findDynamodb({ env, log: nowhere });
    expect(found).toEqual({
      unavailable: expect.stringMatching(/is not what it was: its sha256 is/),
    });
    expect(await readdir(cache)).toEqual([]);
  });
});
