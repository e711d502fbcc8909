import type { BuildOptions } from 'esbuild';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
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

interface ServerlessYml {
  readonly custom: { readonly esbuild: Packaging };
  readonly params: { readonly default: { readonly minify: boolean } };
}

export function deployedBuild(): DeployedBuild {
  const { custom, params } = readServerlessYml() as ServerlessYml;
  const { exclude, outputFileExtension, external = [], ...options } = custom.esbuild;
  return {
    options: {
      ...options,
      // A parameter: for the debugger it is off.
      minify: params.default.minify,
      absWorkingDir: PROJECT_FOLDER,
      external: [...external, ...exclude],
      sourcemap: false,
    },
    exclude,
    extension: outputFileExtension,
  };
}
