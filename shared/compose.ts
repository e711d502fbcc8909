/**
 * The composition root: the one place that knows every part and puts them
 * together. Only `functions/` imports it, and the library's face hands it on.
 */
import middy, { type MiddlewareObj } from '@middy/core';
import httpJsonBodyParser from '@middy/http-json-body-parser';
import type { Context } from 'aws-lambda';
import type { Redis } from 'ioredis';
import type { ZodMiniType } from 'zod/mini';
import { type Config, loadConfig } from './config.ts';
import { acceptBody, validateBody } from './http/body.ts';
import { readPrincipal } from './http/principal.ts';
import { type HttpResponse, Problem } from './http/problems.ts';
import { type HttpEvent, type HttpRequest, readRequest } from './http/request.ts';
import { type FastPath, NO_FAST_PATH, type Store } from './idempotency/contract.ts';
import {
  idempotency,
  type Once,
  type OnceContext,
  problemResponses,
  type Report,
} from './idempotency/middleware.ts';
import { createLogger, type Logger } from './logger.ts';
import { createMeter, type Meter } from './metrics.ts';
import { markerStore } from './postgres/marker-store.ts';
import { createDatabase, type Database } from './postgres/pool.ts';
import { type RecordTx, recordStore } from './postgres/record-store.ts';
import type { Tx } from './postgres/transaction.ts';
import { createRedis, firstConnection } from './redis/client.ts';
import { redisFastPath } from './redis/fast-path.ts';

export type Handler = (event: HttpEvent, context: Context) => Promise<HttpResponse>;

/** What a protected handler is given. */
export interface MutationInput<Body, Handle = Tx> {
  readonly principal: string;
  readonly body: Body;
  readonly request: HttpRequest;
  readonly once: Once<Handle>;
}

/** A mutation, apart from the servers that it will run against. */
export interface MutationRoute<Body, Handle = Tx> {
  /** Kebab case; names the function in logs and in `BACKSTOP_KEY_MODE_…`. */
  readonly name: string;
  /** The shape of the JSON body; undefined for a request that has none. */
  readonly body: ZodMiniType<Body> | undefined;
  /** Where a client whose key is used up finds the state that decides. */
  readonly stateUrl: string;
  run(input: MutationInput<Body, Handle>): Promise<HttpResponse>;
}

export interface QueryInput {
  readonly principal: string;
  readonly request: HttpRequest;
  readonly service: Service;
}

/** A request that changes nothing and so needs no key. */
export interface QueryRoute {
  readonly name: string;
  /** Answers anybody; `principal` is empty then. */
  readonly isPublic?: boolean;
  run(input: QueryInput): Promise<HttpResponse>;
}

/** Everything that one process shares among its requests. Nothing is connected before its first use. */
export interface Service {
  readonly config: Config;
  readonly database: Database;
  readonly logger: Logger;
  readonly meter: Meter;
  /** Each rejects when that dependency cannot be used now. */
  readonly dependencies: Readonly<Record<string, () => Promise<unknown>>>;
  /** Protected by a marker: for short windows and the highest rate. */
  mutation<Body>(route: MutationRoute<Body>): Handler;
  /** Protected by a durable record: for responses that must be replayed whatever Redis remembers. */
  recordMutation<Body>(route: MutationRoute<Body, RecordTx>): Handler;
  query(route: QueryRoute): Handler;
  close(): Promise<void>;
}

export function createService(config: Config): Service {
  const logger = createLogger('backstop');
  const meter = createMeter('backstop');
  const database = createDatabase({
    connectionString: config.databaseUrl,
    max: config.poolMax,
    pipeline: config.pipeline,
    connectTimeoutMs: config.databaseConnectTimeoutMs,
    onIdleError: (error) => logger.warn('An idle database connection was lost', error),
  });
  const redis = openRedis(config, logger);
  const fastPath = openFastPath(config, redis, logger, meter);
  const shared = { config, logger, meter };
  const service: Service = {
    ...shared,
    database,
    dependencies: {
      postgres: () => database.pool.query('SELECT 1'),
      redis: () => pingRedis(config, redis),
    },
    mutation: (route) => {
      const store = markerStore({ database, retentionMs: config.retentionMs });
      return mutationHandler(route, { ...shared, store, fastPath });
    },
    recordMutation: (route) => {
      const leaseMs = config.leaseMs(route.name);
      const store = recordStore({ database, retentionMs: config.recordRetentionMs, leaseMs });
      return mutationHandler(route, { ...shared, store, fastPath: NO_FAST_PATH });
    },
    query: (route) => queryHandler(route, service),
    close: async () => {
      redis?.disconnect();
      await database.pool.end();
    },
  };
  return service;
}

interface Parts<Handle> {
  readonly config: Config;
  readonly logger: Logger;
  readonly meter: Meter;
  readonly store: Store<Handle>;
  readonly fastPath: FastPath;
}

/** Authentication, key and fingerprint, then the body: in the order of the contract. */
function mutationHandler<Body, Handle>(
  route: MutationRoute<Body, Handle>,
  { config, logger, meter, store, fastPath }: Parts<Handle>,
): Handler {
  const protection = idempotency<Handle>({
    ...config,
    fastPath,
    store,
    stateUrl: route.stateUrl,
    keyMode: config.keyMode(route.name),
    report: (report) => record(route.name, report, logger, meter),
  });
  const stack = bare<Handle>()
    .use(outermost(route.name, config, logger))
    .use(protection);
  if (route.body) {
    stack
      .use(acceptBody(config.bodyBytesMax))
      .use(httpJsonBodyParser() as Step)
      .use(validateBody(route.body) as Step);
  }
  return stack.handler((event, { once, principal, http }) =>
    route.run({ principal, once, request: http, body: event.body as never }),
  ) as unknown as Handler;
}

function queryHandler(route: QueryRoute, service: Service): Handler {
  const { config, logger } = service;
  return bare()
    .use(outermost(route.name, config, logger))
    .handler((event) => {
      const principal = route.isPublic ? '' : readPrincipal(event, config.issuerAliases);
      if (principal === undefined) {
        throw new Problem('UNAUTHENTICATED', 'The request carries no proof of who sends it.');
      }
      return route.run({ principal, service, request: readRequest(event) });
    }) as unknown as Handler;
}

/** Without middy's own early time-out, which answers while the handler runs on: `once` has a deadline. */
function bare<Handle = Tx>() {
  return middy<HttpEvent, HttpResponse, Error, OnceContext<Handle>>({ timeoutEarlyInMillis: 0 });
}

// biome-ignore lint/suspicious/noExplicitAny: a step that touches neither error nor context fits any stack.
type Step = MiddlewareObj<HttpEvent, HttpResponse, any, any>;

function outermost(name: string, { problemBaseUrl }: Config, logger: Logger): Step {
  const report = (report: Report) => record(name, report, logger);
  return problemResponses({ problemBaseUrl, report }) as Step;
}

function openRedis(config: Config, logger: Logger): Redis | undefined {
  if (config.redisUrl === undefined) return undefined;
  return createRedis({
    url: config.redisUrl,
    commandTimeoutMs: config.redisCommandTimeoutMs,
    onError: (error) => logger.debug('Redis connection', error),
  });
}

async function pingRedis(config: Config, redis: Redis | undefined): Promise<unknown> {
  if (!redis) throw new Error('REDIS_URL is not set');
  await firstConnection(redis, config.redisConnectBudgetMs);
  return redis.ping();
}

function openFastPath(
  config: Config,
  redis: Redis | undefined,
  logger: Logger,
  meter: Meter,
): FastPath {
  if (!redis) return NO_FAST_PATH;
  return redisFastPath({
    redis,
    connectBudgetMs: config.redisConnectBudgetMs,
    coolDownMs: config.redisCoolDownMs,
    onFailure: (step, error) => {
      meter.fastPathFailure(step);
      logger.warn('The fast path failed; the request went on without it', {
        step,
        error: String(error),
      });
    },
  });
}

/** One line for each request: how it ended, and which layer decided. */
function record(name: string, report: Report, logger: Logger, meter?: Meter): void {
  const { layer, outcome, attempts, keyHash, error } = report;
  const line = { function: name, layer, outcome, attempts, keyHash };
  const isOurFault = error !== undefined && !(error instanceof Problem && !error.options.cause);
  if (isOurFault) logger.error('request', { ...line, error: error as Error });
  else logger.info('request', line);
  if (outcome === 'key_empty') meter?.keyEmpty();
  else meter?.outcome(layer, outcome);
}

let shared: Service | undefined;

/**
 * The service of this process, from its environment. Made when the first function
 * is loaded, so that a wrong configuration fails the start and not a request.
 */
export function deployedService(): Service {
  shared ??= createService(loadConfig());
  return shared;
}
