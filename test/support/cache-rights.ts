import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
import { parseServerlessYml } from './serverless-yml.ts';

interface CacheTemplate {
  readonly Resources: {
    readonly CacheUser: { readonly Properties: { readonly AccessString: string } };
  };
}

/** What the cache's user of a deployment of that name may do: arguments of ACL SETUSER. */
export function cacheRights(namespace: string): readonly string[] {
  const text = readFileSync(join(PROJECT_FOLDER, 'infra', 'cache.yml'), 'utf8');
  const { Resources } = parseServerlessYml(text) as CacheTemplate;
  const { AccessString } = Resources.CacheUser.Properties;
  return AccessString.replaceAll('${self:custom.name}', namespace).split(/\s+/);
}
