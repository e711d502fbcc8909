/**
 * Compiled, and never run: what TypeScript must refuse, and types that must be no `any`. An
 * `@ts-expect-error` without an error is an error itself.
 */
import { type Cache, type HttpEvent, NO_CACHE, Problem, type Store } from 'lambda-backstop';
import { dynamoStore, dynamoWork, type Item } from 'lambda-backstop/dynamodb';
import { type HttpWork, idempotency, type OnceContext, type Report } from 'lambda-backstop/lambda';
import {
  createDatabase,
  type Database,
  markerStore,
  type RecordTx,
  recordStore,
  type Tx,
} from 'lambda-backstop/postgres';
import { type RedisClient, redisClaimCache } from 'lambda-backstop/redis';
import { deployedService, type Handler, type Service } from 'lambda-backstop/service';
// @ts-expect-error only the faces can be imported
import 'lambda-backstop/dist/core/once.js';

type IsAny<T> = 0 extends 1 & T ? true : false;
/** Does not compile where one of them is `any`. */
type NoneIsAny<T extends readonly unknown[]> = { [K in keyof T]: IsAny<T[K]> } extends false[]
  ? true
  : false;

export const isNoneAny: NoneIsAny<
  [
    HttpEvent,
    HttpEvent['headers'],
    Parameters<Handler>[0],
    Parameters<Handler>[1],
    Awaited<ReturnType<Handler>>,
    Tx,
    Awaited<ReturnType<Tx['query']>>,
    Awaited<ReturnType<Tx['query']>>['rows'],
    Awaited<ReturnType<RecordTx['query']>>['rows'],
    Database,
    Database['pool'],
    Awaited<ReturnType<Database['pool']['connect']>>,
    Awaited<ReturnType<Service['database']['pool']['query']>>,
    RedisClient,
    Item,
    Item[string],
    OnceContext<Tx>,
    OnceContext<Tx>['awsRequestId'],
    OnceContext<Tx>['once'],
    Parameters<OnceContext<Tx>['once']>[0],
    Report['outcome'],
    ReturnType<typeof idempotency<Tx>>,
    NonNullable<ReturnType<typeof idempotency<Tx>>['before']>,
  ]
> = true;

// @ts-expect-error a work returns a response or a Problem
export const number: HttpWork<Tx> = async () => 42;
// @ts-expect-error a response has a status
export const bare: HttpWork<Tx> = async () => ({ body: 'done' });
// @ts-expect-error a work is asynchronous
export const early: HttpWork<Tx> = () => ({ statusCode: 200 });
export const typed: HttpWork<Tx> = async (tx) => {
  const { rows } = await tx.query<{ coins: number }>('SELECT coins FROM players', []);
  // @ts-expect-error the row has no such column
  rows[0]?.gold;
  // @ts-expect-error the column is a number
  const text: string | undefined = rows[0]?.coins;
  // @ts-expect-error the tx has neither a commit nor a rollback
  await tx.commit();
  // @ts-expect-error values are an array
  await tx.query('SELECT $1', 1);
  return { statusCode: 200, body: String(text) };
};

// @ts-expect-error no such problem code
new Problem('OUT_OF_LUCK', 'Try again.');
// @ts-expect-error a store begins
export const store: Store<Tx> = { release: async () => {} };
// @ts-expect-error a cache claims
export const noCache: Cache = { publish: async () => {} };

const pool = {
  connectionString: 'postgres://127.0.0.1:9/none',
  max: 1,
  pipeline: true,
  connectTimeoutMs: 1000,
  onIdleError: (error: Error) => console.error(error.message),
};
const database = createDatabase(pool);
// @ts-expect-error how many connections is a number
createDatabase({ ...pool, max: '1' });
// @ts-expect-error the retention is missing
markerStore({ database });
const options = {
  store: markerStore({ database, retentionMs: 3_600_000 }),
  cache: NO_CACHE,
  keyMode: 'required',
  answerMarginMs: 1000,
  requestTimeoutMs: 10_000,
  storedBodyBytesMax: 100_000,
  report: ({ outcome }: Report) => {
    // @ts-expect-error no such outcome: an alarm on it would never ring
    if (outcome === 'exploded') return;
  },
} as const;
idempotency<Tx>(options);
// @ts-expect-error no such key mode
idempotency<Tx>({ ...options, keyMode: 'maybe' });
// @ts-expect-error no such option
idempotency<Tx>({ ...options, keyMod: 'required' });
// @ts-expect-error without a store
idempotency<Tx>({ ...options, store: undefined });
// @ts-expect-error this store hands its work another tx
idempotency<RecordTx>(options);
// @ts-expect-error a lease has a length
recordStore({ database, retentionMs: 1, leaseMs: 'long' });
// @ts-expect-error a store in DynamoDB has a table
dynamoStore({ retentionMs: 1 });
// @ts-expect-error whose answers the cache holds must be said
redisClaimCache({
  redis: {} as RedisClient,
  connectBudgetMs: 1,
  coolDownMs: 1,
  onFailure: () => {},
});

export const proposal = dynamoWork(async (table) => {
  // @ts-expect-error a key is a string
  await table.get(1);
  return { writes: [], response: { statusCode: 204 } };
});

export const handler: Handler = deployedService().mutation({
  name: 'rename',
  body: undefined,
  stateUrl: '/accounts/mine',
  run: ({ once, ...input }) => {
    // @ts-expect-error the input has no such member
    input.user;
    return once(async () => ({ statusCode: 204 }));
  },
});
// @ts-expect-error a mutation says where its state is found
deployedService().mutation({
  name: 'rename',
  body: undefined,
  run: async () => ({ statusCode: 204 }),
});
// @ts-expect-error a handler is given an event of API Gateway
export const answer = handler({ Records: [] }, {});
