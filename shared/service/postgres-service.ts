/**
 * The composition root of what runs on Postgres: the place that knows every part and puts
 * them together. (What runs on DynamoDB, and the purge, have roots of their own, so that no
 * function is deployed with a client that it never uses.) Only `functions/` imports it, and
 * the library's face hands it on.
 */

import { nowMs } from '../core/clock.ts';
import { markerStore } from '../postgres/marker-store.ts';
import { createDatabase, type Database, type Queryable } from '../postgres/pool.ts';
import { rdsToken } from '../postgres/rds-token.ts';
import { readsOn } from '../postgres/reads.ts';
import { type RecordTx, recordStore } from '../postgres/record-store.ts';
import { openCaches } from './cache.ts';
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
import type { Environment } from './settings/component.ts';
import { leaseOf } from './settings/postgres.ts';
import { processEnvironment, readSettings, type SettingsFor } from './settings.ts';

/** How long a dependency has to show that it is there. */
const PING_MS = 1500;

export interface QueryInput extends QueryInputOn<Service> {
  /** Reads, each within the request's deadline. */
  readonly db: Queryable;
}
export type QueryRoute = QueryRouteOn<Service, QueryInput>;

/** Everything that one process shares among its requests. Nothing is connected before its first use. */
export interface Service {
  readonly settings: SettingsFor<'postgres'>;
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

/** @throws ConfigError for an environment that cannot be; see docs/settings.md. */
export function createService(environment: Environment = processEnvironment()): Service {
  const settings = readSettings('postgres', environment);
  const { markers, records } = settings;
  const logger = createLogger('backstop');
  const meter = createMeter('backstop', settings.service.stage);
  const { url, tokenRegion, poolMax, pipeline, connectTimeoutMs } = settings.database;
  const database = createDatabase({
    connectionString: url,
    password: tokenRegion === undefined ? undefined : rdsToken(url, tokenRegion),
    max: poolMax,
    pipeline: pipeline === 'on',
    connectTimeoutMs,
    onIdleError: (error) =>
      logger.warn('An idle database connection was lost', { error: String(error) }),
  });
  const redis = openCaches(settings.redis, logger, meter);
  const claimCache = redis.cache('claims');
  const recordCache = redis.cache({ store: 'record', isPerEndpoint: true });
  const parts = { settings, logger, meter };
  const service: Service = {
    ...parts,
    database,
    dependencies: {
      postgres: () => readsOn(database, nowMs() + PING_MS).query('SELECT 1'),
      redis: redis.ping,
    },
    mutation: (route) => {
      const store = markerStore({ database, retentionMs: markers.retentionMs });
      return mutationHandler(route, { ...parts, store, cache: claimCache });
    },
    recordMutation: (route) => {
      const leaseMs = leaseOf(records, route.name);
      const store = recordStore({ database, retentionMs: records.retentionMs, leaseMs });
      return mutationHandler(route, { ...parts, store, cache: recordCache });
    },
    query: (route) => {
      const run = (input: QueryInputOn<Service>) =>
        route.run({ ...input, db: readsOn(database, input.deadlineMs) });
      return queryHandler({ ...route, run }, service);
    },
    close: async () => {
      await redis.close();
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
  shared ??= createService();
  return shared;
}
