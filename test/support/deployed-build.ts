import type { BuildOptions } from 'esbuild';
import { projectFolder } from '../../infra/local/project.ts';
import { readServerlessYml } from './serverless-yml.ts';

export interface DeployedBuild {
  /** As serverless.yml has a function bundled; still to be said: from where, and to where. */
  readonly options: BuildOptions;
  /** What is left out of the bundle, and must never be loaded. */
  readonly exclude: readonly string[];
  /** `.mjs` or the like. */
  readonly extension: string;
}

interface Packaging extends BuildOptions {
  readonly exclude: readonly string[];
  readonly outputFileExtension: string;
}

export function deployedBuild(): DeployedBuild {
  const { custom } = readServerlessYml() as { custom: { esbuild: Packaging } };
  const { exclude, outputFileExtension, external = [], ...options } = custom.esbuild;
  return {
    options: {
      ...options,
      absWorkingDir: projectFolder,
      external: [...external, ...exclude],
      sourcemap: false,
    },
    exclude,
    extension: outputFileExtension,
  };
}
