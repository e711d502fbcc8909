/** What is deployed, as serverless.yml has it bundled: its size is its cold start. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { expect, onTestFinished, test } from 'vitest';
import { deployedBuild } from '../support/deployed-build.ts';

const { options, exclude, extension } = deployedBuild();

async function bundle(entryPoint: string) {
  const built = await build({
    ...options,
    entryPoints: [entryPoint],
    write: false,
    metafile: true,
    outfile: `out${extension}`,
  });
  const [output] = Object.values(built.metafile.outputs);
  const excluded = output?.imports.filter(
    ({ path }) => exclude.includes(path) && path.startsWith('@aws-sdk/'),
  );
  return { bytes: output?.bytes ?? 0, excluded: excluded ?? [] };
}

test.each([
  ['functions/players/spend-coins.ts', 550_000],
  ['functions/badges/award-badge.ts', 600_000],
  ['functions/operations/purge.ts', 300_000],
])('%s is below %i bytes, and needs nothing that is left out', async (entryPoint, bytesMax) => {
  const { bytes, excluded } = await bundle(entryPoint);
  expect(bytes).toBeGreaterThan(100_000);
  expect(bytes).toBeLessThan(bytesMax);
  // Imported when it is asked for: a Lambda's credentials are found before that.
  expect(excluded.filter(({ kind }) => kind !== 'dynamic-import')).toEqual([]);
});

test('a function loads without its Redis client', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'backstop-test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const outfile = join(folder, `out${extension}`);
  await build({ ...options, entryPoints: ['functions/players/spend-coins.ts'], outfile });
  // ioredis asks for `tty`, and nothing else here does: a sign that a bundle cannot hide.
  const look = `console.log(process.moduleLoadList.includes('NativeModule tty'))`;
  const client = import.meta.resolve('ioredis');
  const script = join(folder, 'script.mjs');
  await writeFile(
    script,
    `await import('${outfile}'); ${look}; await import('${client}'); ${look}`,
  );
  const env = {
    DATABASE_URL: 'postgres://api@127.0.0.1:9/x',
    REDIS_URL: 'redis://127.0.0.1:9',
    BACKSTOP_NAMESPACE: 'test',
  };
  const { stdout } = await promisify(execFile)(process.execPath, [script], { env });
  expect(stdout).toBe('false\ntrue\n');
});
