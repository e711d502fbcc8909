/**
 * The composition root of what runs on Postgres: the place that knows every part and puts
 * them together. (What runs on DynamoDB, and the purge, have roots of their own, so that no
 * function is deployed with a client that it never uses.) Only `functions/` imports it, and
 * the library's face hands it on.
 */

import { nowMs } from '../core/clock.ts';
import { markerStore } from '../postgres/marker-store.ts';
import { createDatabase, type Database, type Queryable } from '../postgres/pool.ts';
import { databasePassword } from '../postgres/rds-token.ts';
import { readsOn } from '../postgres/reads.ts';
import { type RecordTx, recordStore } from '../postgres/record-store.ts';
import { openFront } from '../redis/lazy.ts';
import { type Config, loadConfig } from './config.ts';
import {
  type Handler,
  type MutationRoute,
  mutationHandler,
  type QueryInputOn,
  type QueryRouteOn,
  queryHandler,
} from './handlers.ts';
import { createLogger, type Logger } from './logger.ts';
import { createMeter, type Meter } from './metrics.ts';

/** How long a dependency has to show that it is there. */
const PING_MS = 1500;

export interface QueryInput extends QueryInputOn<Service> {
  /** Reads, each within the request's deadline. */
  readonly db: Queryable;
}
export type QueryRoute = QueryRouteOn<Service, QueryInput>;

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
  const meter = createMeter('backstop', config.stage);
  const database = createDatabase({
    connectionString: config.databaseUrl,
    password: databasePassword(config, config.databaseUrl),
    max: config.poolMax,
    pipeline: config.pipeline,
    connectTimeoutMs: config.databaseConnectTimeoutMs,
    onIdleError: (error) =>
      logger.warn('An idle database connection was lost', { error: String(error) }),
  });
  const front = openFront(config, logger, meter);
  const fastPath = front.fastPath('claims');
  const recordCache = front.fastPath('record');
  const shared = { config, logger, meter };
  const service: Service = {
    ...shared,
    database,
    dependencies: {
      postgres: () => readsOn(database, nowMs() + PING_MS).query('SELECT 1'),
      redis: front.ping,
    },
    mutation: (route) => {
      const store = markerStore({ database, retentionMs: config.retentionMs });
      return mutationHandler(route, { ...shared, store, fastPath });
    },
    recordMutation: (route) => {
      const leaseMs = config.leaseMs(route.name);
      const store = recordStore({ database, retentionMs: config.recordRetentionMs, leaseMs });
      return mutationHandler(route, { ...shared, store, fastPath: recordCache });
    },
    query: (route) => {
      const run = (input: QueryInputOn<Service>) =>
        route.run({ ...input, db: readsOn(database, input.deadlineMs) });
      return queryHandler({ ...route, run }, service);
    },
    close: async () => {
      await front.close();
      await database.pool.end();
    },
  };
  return service;
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
