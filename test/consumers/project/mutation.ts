/** A mutation of a service that is not ours, typed as strictly as TypeScript can, on real servers. */
import middy from '@middy/core';
import type { Context } from 'aws-lambda';
import {
  acceptsVersion,
  type Cache,
  type HttpEvent,
  type HttpResponse,
  NO_CACHE,
  Problem,
  readIfMatch,
} from 'lambda-backstop';
import {
  idempotency,
  type OnceContext,
  problemResponses,
  type Report,
} from 'lambda-backstop/lambda';
import { createDatabase, markerStore, migrate, type Tx } from 'lambda-backstop/postgres';
import { createRedis, redisClaimCache } from 'lambda-backstop/redis';
import pg from 'pg';

const { MIGRATOR_URL = '', DATABASE_URL = '', REDIS_URL = '', RUN = '' } = process.env;

const admin = new pg.Client({ connectionString: MIGRATOR_URL });
await admin.connect();
const migrations = await migrate(MIGRATOR_URL);
await admin.query('CREATE TABLE accounts (owner text PRIMARY KEY, balance int, version int)');
await admin.query('GRANT SELECT, UPDATE ON accounts TO backstop_api');
await admin.query("INSERT INTO accounts VALUES ('alice', 100, 1)");

const database = createDatabase({
  connectionString: DATABASE_URL,
  max: 1,
  pipeline: true,
  connectTimeoutMs: 20_000,
  onIdleError: console.error,
});
const redis =
  REDIS_URL && createRedis({ url: REDIS_URL, commandTimeoutMs: 20_000, onError: console.error });
const cache: Cache = redis
  ? redisClaimCache({
      redis,
      namespace: `consumer-${RUN}`,
      connectBudgetMs: 20_000,
      coolDownMs: 1000,
      onFailure: console.error,
    })
  : NO_CACHE;

const outcomes: Report['outcome'][] = [];

async function withdraw(tx: Tx, owner: string, amount: number): Promise<HttpResponse> {
  const { rows } = await tx.query<{ balance: number; version: number }>(
    `UPDATE accounts SET balance = balance - $2, version = version + 1
      WHERE owner = $1 AND balance >= $2 RETURNING balance, version`,
    [owner, amount],
  );
  const [account] = rows;
  if (!account) return { statusCode: 402 };
  return { statusCode: 200, body: JSON.stringify({ balance: account.balance }) };
}

const handler = middy<HttpEvent, HttpResponse, Error, OnceContext<Tx>>({ timeoutEarlyInMillis: 0 })
  .use(problemResponses())
  .use(
    idempotency<Tx>({
      store: markerStore({ database, retentionMs: 3_600_000 }),
      cache,
      keyMode: 'required',
      answerMarginMs: 1000,
      requestTimeoutMs: 60_000,
      storedBodyBytesMax: 100_000,
      report: ({ outcome }) => outcomes.push(outcome),
    }),
  )
  .handler((_event, { once, principal, http }) => {
    const ifMatch = readIfMatch(http);
    return once(async (tx) => {
      if (!acceptsVersion(ifMatch, '1'))
        throw new Problem('VERSION_MISMATCH', 'Somebody was faster.');
      return withdraw(tx, principal, 30);
    });
  });

const post = async (key: string, headers: Record<string, string> = {}) => {
  const event = {
    version: '2.0',
    routeKey: 'POST /withdrawals',
    rawPath: '/withdrawals',
    rawQueryString: '',
    headers: { 'idempotency-key': key, ...headers },
    requestContext: {
      http: { method: 'POST', path: '/withdrawals' },
      authorizer: { jwt: { claims: { sub: 'alice' } } },
    },
    isBase64Encoded: false,
  };
  const context = { getRemainingTimeInMillis: () => 60_000 };
  const { statusCode, body } = await handler(
    event as unknown as HttpEvent,
    context as Context as OnceContext<Tx>,
  );
  return [statusCode, body];
};

const answers = [
  await post('one'),
  await post('one'),
  await post('two', { 'if-match': '"0"' }),
  await post('two'),
];
const { rows } = await admin.query<{ balance: number }>('SELECT balance FROM accounts');
console.log(
  JSON.stringify({
    node: process.versions.node,
    migrations: migrations.length > 0,
    answers: answers.map(([status, body]) => [status, JSON.parse(String(body))]),
    outcomes,
    balance: rows[0]?.balance,
  }),
);
await admin.end();
await database.pool.end();
if (redis) redis.disconnect();
