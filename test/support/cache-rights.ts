import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectFolder } from '../../infra/local/project.ts';
import { parseServerlessYml } from './serverless-yml.ts';

interface CacheTemplate {
  readonly Resources: {
    readonly CacheUser: { readonly Properties: { readonly AccessString: string } };
  };
}

/** What the functions' user of the cache may do, as it is deployed: arguments of ACL SETUSER. */
export function cacheRights(): readonly string[] {
  const text = readFileSync(join(projectFolder, 'infra', 'cache.yml'), 'utf8');
  const { Resources } = parseServerlessYml(text) as CacheTemplate;
  return Resources.CacheUser.Properties.AccessString.split(/\s+/);
}
