/**
 * The composition root of what runs on DynamoDB, apart from the others': a function on
 * Postgres is deployed without the AWS SDK, and one on DynamoDB without pg.
 */

import { dynamoStore } from '../dynamodb/dynamo-store.ts';
import { createTable, type Table } from '../dynamodb/table.ts';
import type { DynamoTx } from '../dynamodb/work.ts';
import { openFront } from '../redis/lazy.ts';
import { type Config, loadConfig } from './config.ts';
import {
  type Handler,
  type MutationRoute,
  mutationHandler,
  type QueryRouteOn,
  queryHandler,
} from './handlers.ts';
import { createLogger, type Logger } from './logger.ts';
import { createMeter, type Meter } from './metrics.ts';

export type DynamoQueryRoute = QueryRouteOn<DynamoService>;

/** What one process shares among its requests to DynamoDB. Nothing is connected before its first use. */
export interface DynamoService {
  readonly config: Config;
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

export function createDynamoService(config: Config): DynamoService {
  const logger = createLogger('backstop');
  const meter = createMeter('backstop', config.stage);
  const table = createTable({
    name: config.dynamoTable,
    endpoint: config.dynamoEndpoint,
    region: config.awsRegion,
    connectTimeoutMs: config.dynamoConnectTimeoutMs,
    requestTimeoutMs: config.dynamoRequestTimeoutMs,
  });
  const store = dynamoStore({
    table,
    retentionMs: config.dynamoRetentionMs,
    ttlSlackMs: config.dynamoTtlSlackMs,
  });
  const front = openFront(config, logger, meter);
  const cache = front.fastPath('dynamo');
  const shared = { config, logger, meter };
  const service: DynamoService = {
    ...shared,
    table,
    ping: () => table.get('ping'),
    mutation: (route) => mutationHandler(route, { ...shared, store, fastPath: cache }),
    query: (route) => queryHandler(route, service),
    close: async () => {
      await front.close();
      table.close();
    },
  };
  return service;
}

let shared: DynamoService | undefined;

/** The service of this process, from its environment. */
export function deployedDynamoService(): DynamoService {
  shared ??= createDynamoService(loadConfig());
  return shared;
}
