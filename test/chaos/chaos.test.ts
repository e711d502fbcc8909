/**
 * Random faults between the handlers and all three servers, duplicates in parallel, and then the
 * balance. `CHAOS_SEED=N npx vitest run test/chaos` repeats the choices of a run, and
 * `CHAOS_SECONDS=N` makes it longer.
 */
import { randomInt, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import * as z from 'zod/mini';
import { INSUFFICIENT_COINS } from '../../functions/problems.ts';
import { dynamoWork } from '../../shared/dynamodb/index.ts';
import { type HttpResponse, Problem } from '../../shared/index.ts';
import type { Tx } from '../../shared/postgres/index.ts';
import {
  createDynamoService,
  createService,
  type Handler,
  type Service,
} from '../../shared/service/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { createTestTable, dynamodbUrl, type TestTable } from '../support/dynamodb.ts';
import { type FaultProxy, startFaultProxy } from '../support/fault-proxy.ts';
import { type HttpFaultProxy, startHttpFaultProxy } from '../support/http-fault-proxy.ts';
import { type PrivateRedis, startPrivateRedis } from '../support/redis.ts';
import { type Answer, lambdaContext, send } from '../support/requests.ts';
import { eventually } from '../support/waiting.ts';
import { isRetryable, type KeyHistory, violationsOf } from './balance.ts';
import { makeFaults } from './faults.ts';
import { type Random, seededRandom } from './random.ts';

const SECONDS = Number(process.env['CHAOS_SECONDS'] ?? 10);
const SEED = Number(process.env['CHAOS_SEED'] ?? randomInt(2 ** 31));

/** What a request has of a Lambda's time: a silent server costs it whole. */
const REQUEST_MS = 3000;
const CLIENTS_PER_STORE = 3;

const endpoint = await dynamodbUrl();

let db: TestDatabase;
let redis: PrivateRedis;
let table: TestTable;
let postgresProxy: FaultProxy;
let redisProxy: FaultProxy;
let dynamodbProxy: HttpFaultProxy;
beforeAll(async () => {
  [db, redis, table] = await Promise.all([
    createTestDatabase(),
    startPrivateRedis(),
    createTestTable(endpoint as string),
  ]);
  await db.sql('CREATE TABLE effects (key text NOT NULL, nonce text NOT NULL)');
  await db.sql('GRANT INSERT ON effects TO backstop_api');
  [postgresProxy, redisProxy, dynamodbProxy] = await Promise.all([
    startFaultProxy(db.apiUrl),
    startFaultProxy(redis.url),
    startHttpFaultProxy(endpoint as string),
  ]);
});
afterAll(async () => {
  await Promise.all([postgresProxy.close(), redisProxy.close(), dynamodbProxy.close()]);
  await Promise.all([redis.close(), table.drop(), db.drop()]);
});

type Kind = KeyHistory['kind'];

/** Keys whose work has thrown once. */
const thrown = new Set<string>();

/** The answer of one run of the work, which no other run gives. */
function answerOf(key: string, kind: Kind, nonce: string): HttpResponse | Problem {
  if (kind === 'refusal') return new Problem(INSUFFICIENT_COINS, nonce);
  if (kind === 'throws-first' && !thrown.has(key)) {
    thrown.add(key);
    throw new Error('the work failed');
  }
  return { statusCode: 200, body: nonce };
}

const body = z.object({ key: z.string(), kind: z.enum(['effect', 'refusal', 'throws-first']) });

/** Every store there is, and every way of asking it. */
function openStores() {
  const settings = {
    DATABASE_URL: postgresProxy.url,
    REDIS_URL: redisProxy.url,
    DYNAMODB_ENDPOINT: dynamodbProxy.url,
    DYNAMODB_TABLE: table.name,
    BACKSTOP_NAMESPACE: 'chaos',
    BACKSTOP_POOL_MAX: '4',
    BACKSTOP_DYNAMO_REQUEST_TIMEOUT_MS: '500',
    // Longer than any request here; a killed owner's record is free again soon after.
    BACKSTOP_LEASE_MS: '4000',
    BACKSTOP_LEASE_RENEWAL: 'on',
  };
  const first = createService(settings);
  const parallel = createService({
    ...settings,
    BACKSTOP_CACHE_MODE: 'parallel',
    BACKSTOP_PIPELINE: 'off',
  });
  const dynamo = createDynamoService(settings);
  const route = { name: 'chaos', body, stateUrl: '/state' };
  const inPostgres = {
    ...route,
    run: ({ once, body: { key, kind } }: Input) =>
      once(async (tx: Tx) => {
        const nonce = randomUUID();
        await tx.query('INSERT INTO effects VALUES ($1, $2)', [key, nonce]);
        return answerOf(key, kind, nonce);
      }),
  };
  const handlers: Record<string, Handler> = {
    marker: first.mutation(inPostgres),
    'marker-parallel': parallel.mutation(inPostgres),
    record: first.recordMutation(inPostgres as never),
    dynamo: dynamo.mutation({
      ...route,
      run: ({ once, body: { key, kind } }) =>
        once(
          dynamoWork(async ({ name }) => {
            const nonce = randomUUID();
            return { writes: [noteEffect(name, key, nonce)], response: answerOf(key, kind, nonce) };
          }),
        ),
    }),
  };
  return { handlers, services: [first, parallel], all: [first, parallel, dynamo] };
}

interface Input {
  readonly once: (work: (tx: Tx) => Promise<HttpResponse | Problem>) => Promise<HttpResponse>;
  readonly body: { readonly key: string; readonly kind: Kind };
}

function noteEffect(TableName: string, key: string, nonce: string) {
  return {
    Update: {
      TableName,
      Key: { pk: { S: `effect:${key}` } },
      UpdateExpression: 'SET nonces = list_append(if_not_exists(nonces, :none), :one)',
      ExpressionAttributeValues: { ':none': { L: [] }, ':one': { L: [{ S: nonce }] } },
    },
  };
}

async function effectsByKey(): Promise<Map<string, string[]>> {
  const effects = new Map<string, string[]>();
  const note = (key: string, nonce: string) =>
    effects.set(key, [...(effects.get(key) ?? []), nonce]);
  for (const { key, nonce } of await db.sql('SELECT key, nonce FROM effects')) note(key, nonce);
  for (const item of await table.items('effect:')) {
    const key = String(item['pk']?.S).slice('effect:'.length);
    for (const { S } of item['nonces']?.L ?? []) note(key, String(S));
  }
  return effects;
}

/** One client with one key: it sends it several times at once, and each again as the contract says. */
async function useKey(handler: Handler, store: string, random: Random, isOver: () => boolean) {
  const key = `${store}-${randomUUID()}`;
  const kind = random.pick(['effect', 'effect', 'effect', 'effect', 'refusal', 'throws-first']);
  const request = { principal: 'chaos', key, path: `/${store}`, body: { key, kind } };
  const answers: Answer[] = [];
  const sendRequest = async () => {
    const answer = await send(handler, request, lambdaContext(REQUEST_MS));
    answers.push(answer);
    return answer;
  };
  const sendUntilDone = async () => {
    for (;;) {
      const { code } = await sendRequest();
      if (isOver() || !(isRetryable(code) || (kind === 'throws-first' && code === 'INTERNAL')))
        return;
      await sleep(random.between(20, 120));
    }
  };
  await Promise.all(Array.from({ length: random.between(1, 4) }, sendUntilDone));
  return { key, kind, answers, sendRequest } as KeyHistory & { sendRequest: typeof sendRequest };
}

test('every key has at most one effect, and exactly one if it was acknowledged, whatever fails', async () => {
  console.info(`chaos: CHAOS_SEED=${SEED} CHAOS_SECONDS=${SECONDS}`);
  const { handlers, services, all } = openStores();
  const endMs = performance.now() + SECONDS * 1000;
  const isOver = () => performance.now() > endMs;
  const histories: Awaited<ReturnType<typeof useKey>>[] = [];
  const clients = Object.entries(handlers).flatMap(([store, handler]) =>
    Array.from({ length: CLIENTS_PER_STORE }, async (_, n) => {
      const random = seededRandom(SEED + n + store.length * 1000);
      while (!isOver()) histories.push(await useKey(handler, store, random, isOver));
    }),
  );
  const servers = {
    db,
    postgres: postgresProxy,
    redis: redisProxy,
    rawRedis: redis.raw,
    dynamodb: dynamodbProxy,
  };
  const [made] = await Promise.all([makeFaults(servers, seededRandom(SEED), isOver), ...clients]);

  // All servers are well: what is still open ends within a lease, and nothing may fail any more.
  await eachOf(histories, 8, async ({ sendRequest, kind }) => {
    await eventually(
      async () => {
        const { code } = await sendRequest();
        return !isRetryable(code) && !(kind === 'throws-first' && code === 'INTERNAL');
      },
      `an end of a key of ${SEED}`,
      60_000,
    );
  });

  const effects = await effectsByKey();
  const violations = violationsOf(histories, (key) => effects.get(key) ?? []);
  expect(violations, `CHAOS_SEED=${SEED}, ${JSON.stringify(made)}`).toEqual([]);
  await expectWholePools(services);
  for (const service of all) await service.close();
  console.info(summaryOf(histories, made));
  // It says nothing when it tried nothing.
  expect(histories.length).toBeGreaterThan(Object.keys(handlers).length);
}, 300_000);

async function eachOf<T>(items: readonly T[], atOnce: number, use: (item: T) => Promise<void>) {
  const queue = [...items];
  const worker = async () => {
    for (let item = queue.shift(); item; item = queue.shift()) await use(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

/** Every connection is idle and in the pool, and none holds a transaction open on the server. */
async function expectWholePools(services: readonly Service[]): Promise<void> {
  for (const { database } of services) {
    const { totalCount, idleCount, waitingCount } = database.pool;
    expect({ busy: totalCount - idleCount, waitingCount }).toEqual({ busy: 0, waitingCount: 0 });
  }
  await eventually(async () => {
    const open = await db.sql(
      `SELECT FROM pg_stat_activity WHERE usename = 'backstop_api' AND datname = current_database()
          AND state <> 'idle'`,
    );
    return open.length === 0;
  }, 'no session of the API in a transaction');
}

function summaryOf(histories: readonly KeyHistory[], made: Record<string, number>): string {
  const outcomes: Record<string, number> = {};
  for (const { status, code, headers } of histories.flatMap(({ answers }) => answers)) {
    const outcome = headers['idempotency-replayed'] ? 'replayed' : `${status} ${code ?? 'fresh'}`;
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  }
  const faults = Object.values(made).reduce((sum, count) => sum + count, 0);
  return `chaos: ${histories.length} keys, ${faults} faults, ${JSON.stringify(outcomes)}`;
}
