/**
 * The composition root of what runs on DynamoDB, apart from the others': a function on
 * Postgres is deployed without the AWS SDK, and one on DynamoDB without pg.
 */

import { dynamoStore } from '../dynamodb/dynamo-store.ts';
import { createTable, type Table } from '../dynamodb/table.ts';
import type { DynamoTx } from '../dynamodb/work.ts';
import { openCaches } from './cache.ts';
import {
  type Handler,
  type MutationRoute,
  mutationHandler,
  type QueryRouteOn,
  queryHandler,
} from './handlers.ts';
import { createLogger, type Logger } from './logger.ts';
import { createMeter, type Meter } from './metrics.ts';
import type { Environment } from './settings/component.ts';
import { processEnvironment, readSettings, type SettingsFor } from './settings.ts';

export type DynamoQueryRoute = QueryRouteOn<DynamoService>;

/** What one process shares among its requests to DynamoDB. Nothing is connected before its first use. */
export interface DynamoService {
  readonly settings: SettingsFor<'dynamodb'>;
  readonly table: Table;
  readonly logger: Logger;
  readonly meter: Meter;
  /** Rejects when the table cannot be used now. */
  ping(): Promise<unknown>;
  /** Protected by a marker item in the transaction that makes the effect; give `once` a `dynamoWork`. */
  mutation<Body>(route: MutationRoute<Body, DynamoTx>): Handler;
  query(route: DynamoQueryRoute): Handler;
  close(): Promise<void>;
}

/** @throws ConfigError for an environment that cannot be; see docs/settings.md. */
export function createDynamoService(
  environment: Environment = processEnvironment(),
): DynamoService {
  const settings = readSettings('dynamodb', environment);
  const { dynamodb } = settings;
  const logger = createLogger('backstop');
  const meter = createMeter('backstop', settings.service.stage);
  const table = createTable({
    name: dynamodb.table,
    endpoint: dynamodb.endpoint,
    region: dynamodb.awsRegion,
    connectTimeoutMs: dynamodb.connectTimeoutMs,
    requestTimeoutMs: dynamodb.requestTimeoutMs,
  });
  const { retentionMs, ttlSlackMs } = dynamodb;
  const store = dynamoStore({ table, retentionMs, ttlSlackMs });
  const redis = openCaches(settings.redis, logger, meter);
  const cache = redis.cache({ store: 'dynamo', isPerEndpoint: false });
  const parts = { settings, logger, meter };
  const service: DynamoService = {
    ...parts,
    table,
    ping: () => table.get('ping'),
    mutation: (route) => mutationHandler(route, { ...parts, store, cache: cache }),
    query: (route) => queryHandler(route, service),
    close: async () => {
      await redis.close();
      table.close();
    },
  };
  return service;
}

let shared: DynamoService | undefined;

/** The service of this process, from its environment. */
export function deployedDynamoService(): DynamoService {
  shared ??= createDynamoService();
  return shared;
}
