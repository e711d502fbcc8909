import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Backend } from './backend.ts';
import { SEEDED_COINS } from './database.ts';
import { type Environment, environment } from './environment.ts';
import { masked } from './output.ts';
import { PROJECT_FOLDER, paths, shown } from './project.ts';
import type { Service } from './services.ts';

/** What a newcomer needs to know and to paste. The first line is for programs as well. */
export function banner(url: string, backend: Backend): string {
  const curl = `curl -i${hasProxy(environment()) ? " --noproxy '*'" : ''}`;
  const spend = (amount: number) =>
    `${curl} ${url}/players/me/coins/spend -H "Authorization: Bearer $TOKEN"` +
    ` -H "Idempotency-Key: $KEY" -H 'Content-Type: application/json' -d '{"amount":${amount}}'`;
  return `ready ${url}

${describeServices(backend)}
  log         ${shown(paths.apiLog)}

Paste into another terminal, in this folder:

  TOKEN=$(npm run --silent token -- alice); KEY=try-$(date +%s)

Send: 200, and ten coins are gone.
  ${spend(10)}

The same again, as a retry would: the same bytes, Idempotency-Replayed: true, no coins taken.
  ${spend(10)}

The key for another request: 422.
  ${spend(11)}

Take Redis away, and bring it back; no retry takes coins twice either way:
  npm run local -- stop redis
  npm run local -- start redis

Ctrl-C ends it and leaves nothing behind.
`;
}

/** @param conflicts variables of the shell that would come before those of the env file. */
export function servicesBanner(backend: Backend, conflicts: readonly string[]): string {
  const forget =
    conflicts.length === 0 ? '' : `env ${conflicts.map((name) => `-u ${name} `).join('')}`;
  const packaged = join('node_modules', '.bin', 'node');
  const node = existsSync(join(PROJECT_FOLDER, packaged)) ? packaged : 'node';
  const command = `${forget}${node} --env-file=${shown(paths.envFile)}`;
  const offline = 'node_modules/.bin/serverless offline start --stage local';
  return `ready, without the API

${describeServices(backend)}
  variables   ${shown(paths.envFile)}

Start the API in another terminal, in this folder:
  ${command} ${offline}

The same for a debugger, and started again whenever the code changes; more in CONTRIBUTING.md:
  ${command} --inspect --watch-path=functions --watch-path=shared ${offline}

Ctrl-C ends the services and leaves nothing behind.
`;
}

function describeServices({ services, variables }: Backend): string {
  return `  PostgreSQL  ${describe(services.postgres, 'nothing works', variables['DATABASE_URL'])}
  Redis       ${describe(services.redis, 'responses are not replayed')}
  DynamoDB    ${describe(services.dynamodb, '/players/me/badges answers 503')}
  players     alice and bob, ${SEEDED_COINS.toLocaleString('en')} coins each`;
}

function describe(service: Service, without: string, url = service.url): string {
  if (service.from === 'nowhere') return `none, so ${without}: ${service.reason}`;
  if (service.from === 'starting') return `still starting, at ${url}; until then ${without}`;
  const origin = service.from === 'local' ? service.server.origin : `from ${service.variable}`;
  return `${masked(url ?? '')}  (${origin})`;
}

/** curl asks a proxy for loopback too. */
function hasProxy(env: Environment): boolean {
  return ['http_proxy', 'ALL_PROXY', 'all_proxy'].some((name) => env[name]);
}
