import { ConfigError } from '../../core/config-error.ts';
import { COMMIT_LOOKUP_GRACE_MS } from '../../core/contract.ts';
import { checkRedisUrl } from '../../core/server-urls.ts';
import { AWS_REGION, CREDENTIALS, neededRegion } from './aws.ts';
import { component, judged, type Settings } from './component.ts';
import { ANSWER_MARGIN_MS, REQUEST_TIMEOUT_MS } from './requests.ts';
import * as row from './row.ts';

// biome-ignore format: a table, with a row on each line
const TABLE = component('Redis', {
  url: row.url('REDIS_URL', checkRedisUrl, 'The Redis in front of the stores; without it there is none.'),
  mode: row.choice('BACKSTOP_REDIS_MODE', ['single', 'cluster'], 'Whether the URL leads to one Redis or into a cluster.'),
  namespace: row.text('BACKSTOP_NAMESPACE', 'In every key: names this deployment (service and stage). Must be set where there is a Redis.'),
  epoch: row.count('BACKSTOP_CACHE_EPOCH', 1, '', 'In every key: raised when the database was restored, so that nothing is replayed that it does not know.'),
  commandTimeoutMs: row.ms('BACKSTOP_REDIS_COMMAND_TIMEOUT_MS', 100, 'For any one command.'),
  connectBudgetMs: row.ms('BACKSTOP_REDIS_CONNECT_BUDGET_MS', 250, 'How long the first request of a process waits for its connection.'),
  coolDownMs: row.ms('BACKSTOP_REDIS_COOL_DOWN_MS', 1000, 'How long Redis is left alone after three failures running.'),
  auth: row.choice('BACKSTOP_REDIS_AUTH', ['password', 'iam'], 'What a connection signs in with: the password of the URL, or a token of its own.'),
  cacheName: row.text('BACKSTOP_REDIS_CACHE_NAME', 'With `iam`: the ElastiCache Serverless cache that tokens are signed for.'),
  awsRegion: AWS_REGION,
  credentials: CREDENTIALS,
  answerMarginMs: ANSWER_MARGIN_MS,
});

type Given = Settings<typeof TABLE>;

/** Undefined where there is no Redis. */
export const REDIS = judged(TABLE, (given) => {
  refuseSlowCommands(given);
  const { url, mode, namespace } = given;
  if (url === undefined) return undefined;
  if (namespace === undefined) {
    throw new ConfigError(
      "BACKSTOP_NAMESPACE is not set: without it two deployments on the Redis of REDIS_URL would replay each other's answers. Set it to the name of this deployment, such as its service and stage: shop-prod.",
    );
  }
  if (mode === 'cluster') refuseDatabaseNumber(url);
  const signIn = given.auth === 'iam' ? tokenSignIn(given, url) : undefined;
  const { epoch, commandTimeoutMs, connectBudgetMs, coolDownMs } = given;
  return { url, mode, namespace, epoch, commandTimeoutMs, connectBudgetMs, coolDownMs, signIn };
});

export type RedisSettings = NonNullable<Settings<typeof REDIS>>;

function refuseSlowCommands({ commandTimeoutMs, answerMarginMs }: Given): void {
  const leastMarginMs = COMMIT_LOOKUP_GRACE_MS + 2 * commandTimeoutMs;
  if (answerMarginMs >= leastMarginMs) return;
  const longer =
    leastMarginMs < REQUEST_TIMEOUT_MS
      ? ` Or set BACKSTOP_ANSWER_MARGIN_MS to ${leastMarginMs}.`
      : '';
  throw new ConfigError(
    `BACKSTOP_REDIS_COMMAND_TIMEOUT_MS is ${commandTimeoutMs}: finding out what became of a lost COMMIT (${COMMIT_LOOKUP_GRACE_MS}) and two slow commands of Redis take ${leastMarginMs}, more than the ${answerMarginMs} of BACKSTOP_ANSWER_MARGIN_MS, and would outlast the request. Set it to ${Math.floor((answerMarginMs - COMMIT_LOOKUP_GRACE_MS) / 2)} or less.${longer}`,
  );
}

function refuseDatabaseNumber(url: string): void {
  const { pathname } = new URL(url);
  if (pathname === '' || pathname === '/') return;
  throw new ConfigError(
    `REDIS_URL names the database "${pathname.slice(1)}": with BACKSTOP_REDIS_MODE=cluster there is none but 0. Leave the path out.`,
  );
}

/** A token is sent in clear text, so only the server that proves its name may read it. */
function tokenSignIn(given: Given, url: string) {
  const region = neededRegion(given.awsRegion, 'BACKSTOP_REDIS_AUTH');
  const { protocol, username } = new URL(url);
  if (protocol !== 'rediss:') {
    throw new ConfigError(
      'REDIS_URL is not a rediss:// URL: with BACKSTOP_REDIS_AUTH=iam each connection sends a token in clear text, which only the server that proves its name may read. Set it to rediss://user@host:6379.',
    );
  }
  if (username === '') {
    throw new ConfigError(
      'REDIS_URL names no user: with BACKSTOP_REDIS_AUTH=iam a token is signed for one. Set it to rediss://user@host:6379.',
    );
  }
  const { cacheName, credentials } = given;
  if (cacheName === undefined) {
    throw new ConfigError(
      'BACKSTOP_REDIS_CACHE_NAME is not set: with BACKSTOP_REDIS_AUTH=iam a token is signed for one cache. Set it to the name of the ElastiCache Serverless cache.',
    );
  }
  credentials();
  return { cacheName, region, credentials };
}
