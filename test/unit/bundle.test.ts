/** What is deployed, as serverless.yml has it bundled: its size is its cold start. */
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build } from 'esbuild';
import { DEFAULT_SCHEMA, load, Type } from 'js-yaml';
import { expect, test } from 'vitest';

interface Packaging extends BuildOptions {
  readonly exclude: string[];
  readonly outputFileExtension: string;
}

/** CloudFormation's own tags (`!GetAtt`), which say nothing here. */
const SCHEMA = DEFAULT_SCHEMA.extend(
  (['scalar', 'sequence', 'mapping'] as const).map((kind) => new Type('!', { kind, multi: true })),
);

const root = fileURLToPath(new URL('../../', import.meta.url));

async function bundle(entryPoint: string) {
  const text = await readFile(`${root}serverless.yml`, 'utf8');
  const { custom } = load(text, { schema: SCHEMA }) as { custom: { esbuild: Packaging } };
  const { exclude, outputFileExtension: _, external = [], ...options } = custom.esbuild;
  const built = await build({
    ...options,
    absWorkingDir: root,
    entryPoints: [entryPoint],
    external: [...external, ...exclude],
    sourcemap: false,
    write: false,
    metafile: true,
    outfile: 'out.mjs',
  });
  const [output] = Object.values(built.metafile.outputs);
  const excluded = output?.imports.filter(({ path }) => exclude.includes(path)) ?? [];
  return { bytes: output?.bytes ?? 0, excluded };
}

test.each([
  ['functions/players/spend-coins.ts', 550_000],
  ['functions/badges/award-badge.ts', 600_000],
  ['functions/purge.ts', 300_000],
])('%s is below %i bytes, and needs nothing that is left out', async (entryPoint, bytesMax) => {
  const { bytes, excluded } = await bundle(entryPoint);
  expect(bytes).toBeGreaterThan(100_000);
  expect(bytes).toBeLessThan(bytesMax);
  // Imported when it is asked for: a Lambda's credentials are found before that.
  expect(excluded.filter(({ kind }) => kind !== 'dynamic-import')).toEqual([]);
});
