/** Functions as they are deployed: one minified file each, by the settings of serverless.yml. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { type BuildOptions, build } from 'esbuild';
import { projectFolder } from '../../infra/local/project.ts';
import { readServerlessYml } from '../support/serverless-yml.ts';

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
  const { outputFileExtension, exclude, external, sourcemap: _, ...options } = deployedOptions();
  await build({
    ...options,
    absWorkingDir: projectFolder,
    entryPoints: Object.entries(ENTRIES).map(([out, path]) => ({ in: path, out })),
    outdir: folder,
    outExtension: { '.js': outputFileExtension },
    external: [...external, ...exclude],
    logLevel: 'error',
  });
  const paths = Object.keys(ENTRIES).map((name) => [
    name,
    join(folder, `${name}${outputFileExtension}`),
  ]);
  return Object.fromEntries(paths) as Record<Variant, string>;
}

export function sizeKb(path: string): number {
  return statSync(path).size / 1024;
}

type DeployedOptions = BuildOptions & {
  readonly outputFileExtension: string;
  readonly exclude: readonly string[];
  readonly external: readonly string[];
};

function deployedOptions(): DeployedOptions {
  return (readServerlessYml() as { custom: { esbuild: DeployedOptions } }).custom.esbuild;
}
