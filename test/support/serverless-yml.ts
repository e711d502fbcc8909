import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DEFAULT_SCHEMA, load, Type } from 'js-yaml';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';

/** `!Ref` and the like mean nothing to a reader of the service's own settings. */
const TAGS = (['scalar', 'sequence', 'mapping'] as const).map(
  (kind) => new Type('!', { kind, multi: true, construct: (data) => data }),
);

export function parseServerlessYml(text: string): unknown {
  return load(text, { schema: DEFAULT_SCHEMA.extend(TAGS) });
}

/** The project's own, with its variables as they stand there. */
export function readServerlessYml(): unknown {
  return parseServerlessYml(readFileSync(join(PROJECT_FOLDER, 'serverless.yml'), 'utf8'));
}
