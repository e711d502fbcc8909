/** Functions as they are deployed: one minified file each, by the settings of serverless.yml. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';
import { deployedBuild } from '../support/deployed-build.ts';

/** The product's own, and the others of `test/bench/variants`. */
export const ENTRIES = {
  backstop: 'functions/players/spend-coins.ts',
  naive: 'test/bench/variants/naive.ts',
  'powertools-redis': 'test/bench/variants/powertools-redis.ts',
  'powertools-dynamodb': 'test/bench/variants/powertools-dynamodb.ts',
} as const;

export type Variant = keyof typeof ENTRIES;

/** @returns the path of each bundle, in `folder`. */
export async function bundleAll(folder: string): Promise<Readonly<Record<Variant, string>>> {
  const { options, extension } = deployedBuild();
  await build({
    ...options,
    entryPoints: Object.entries(ENTRIES).map(([out, path]) => ({ in: path, out })),
    outdir: folder,
    outExtension: { '.js': extension },
    logLevel: 'error',
  });
  const paths = Object.keys(ENTRIES).map((name) => [name, join(folder, `${name}${extension}`)]);
  return Object.fromEntries(paths) as Record<Variant, string>;
}

export function sizeKb(path: string): number {
  return statSync(path).size / 1024;
}
