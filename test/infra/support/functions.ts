/** The functions of serverless.yml, each with what its module says that it runs on. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PROJECT_FOLDER } from '../../../infra/local/project.ts';
import { readServerlessYml } from '../../support/serverless-yml.ts';

export interface DeployedFunction {
  /** As in serverless.yml: `spendCoins`. */
  readonly name: string;
  /** As CloudFormation's ids begin: `SpendCoins`. */
  readonly id: string;
  /** Its module, without the ending: `functions/players/spend-coins`. */
  readonly module: string;
  /** How its handler is made: `deployedService.mutation`; undefined where that is not on one line. */
  readonly kind: string | undefined;
  readonly isBehindApi: boolean;
}

interface Declared {
  readonly handler: string;
  readonly events?: unknown;
}

export function deployedFunctions(): DeployedFunction[] {
  const { functions } = readServerlessYml() as { functions: Record<string, Declared> };
  return Object.entries(functions).map(([name, { handler, events }]) => {
    const module = handler.replace(/\.\w+$/, '');
    const source = readFileSync(join(PROJECT_FOLDER, `${module}.ts`), 'utf8');
    const [, root, method] = /^export const handler = (\w+)\(\)\.(\w+)\(/m.exec(source) ?? [];
    return {
      name,
      id: name.charAt(0).toUpperCase() + name.slice(1),
      module,
      kind: root && `${root}.${method}`,
      isBehindApi: JSON.stringify(events ?? []).includes('"httpApi"'),
    };
  });
}
