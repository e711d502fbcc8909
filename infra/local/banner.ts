import { seededCoins } from './database.ts';
import { paths, shown } from './project.ts';
import type { Part, Services } from './services.ts';

/** What a newcomer needs to know and to paste. The first line is for programs as well. */
export function banner(url: string, databaseUrl: string, services: Services): string {
  const spend = (amount: number) =>
    `curl -i ${url}/players/me/coins/spend -H "Authorization: Bearer $TOKEN"` +
    ` -H "Idempotency-Key: $KEY" -H 'Content-Type: application/json' -d '{"amount":${amount}}'`;
  return `ready ${url}

  PostgreSQL  ${describe(services.postgres, 'nothing works', databaseUrl)}
  Redis       ${describe(services.redis, 'responses are not replayed')}
  DynamoDB    ${describe(services.dynamodb, '/players/me/badges answers 503')}
  players     alice and bob, ${seededCoins.toLocaleString('en')} coins each
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

function describe(part: Part, without: string, url = part.url): string {
  if (part.from === 'nowhere') return `none, so ${without}: ${part.reason}`;
  if (part.from === 'starting') return `still starting, at ${part.url}; until then ${without}`;
  const origin = part.from === 'local' ? part.server.origin : `from ${part.variable}`;
  return `${masked(url ?? '')}  (${origin})`;
}

/** The address without its password, be it before the host or among the parameters. */
export function masked(url: string): string {
  if (!URL.canParse(url)) return '(not shown)';
  const shownUrl = new URL(url);
  if (shownUrl.password !== '') shownUrl.password = '***';
  for (const name of shownUrl.searchParams.keys()) {
    if (/pass/i.test(name)) shownUrl.searchParams.set(name, '***');
  }
  return shownUrl.href;
}
