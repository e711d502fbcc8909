/** The library's whole public face. */

export {
  type FastPath,
  type FastPathMode,
  LeaseLostError,
  NO_FAST_PATH,
  type Store,
  type StoredResponse,
  type Work,
} from './core/contract.ts';
export { dynamoStore } from './dynamodb/dynamo-store.ts';
export { createTable, type Item, type Table, type TableOptions } from './dynamodb/table.ts';
export {
  type DynamoTx,
  dynamoWork,
  type Proposal,
  type Reader,
  type Write,
} from './dynamodb/work.ts';
export { acceptsVersion, type IfMatch, readIfMatch } from './http/precondition.ts';
export { readPrincipal } from './http/principal.ts';
export {
  type HttpResponse,
  PROBLEM_KINDS,
  Problem,
  type ProblemCode,
  type ProblemOptions,
  problemResponse,
} from './http/problems.ts';
export { type HttpEvent, type HttpRequest, NotHttpError, readRequest } from './http/request.ts';
export {
  type IdempotencyOptions,
  idempotency,
  type KeyMode,
  type Once,
  type OnceContext,
} from './lambda/middleware.ts';
export { type ProblemResponsesOptions, problemResponses } from './lambda/problem-responses.ts';
export type { HandlerFault, Outcome, Report } from './lambda/reports.ts';
export { compareAndSwap, STALE } from './postgres/compare-and-swap.ts';
export { markerStore } from './postgres/marker-store.ts';
export { migrate } from './postgres/migrate.ts';
export {
  createDatabase,
  type Database,
  type PoolOptions,
  type Queryable,
} from './postgres/pool.ts';
export { readsOn } from './postgres/reads.ts';
export { type RecordTx, recordStore } from './postgres/record-store.ts';
export type { Tx } from './postgres/transaction.ts';
export { redisFastPath } from './redis/claim-cache.ts';
export { createRedis, type RedisClient } from './redis/client.ts';
export { redisResponseCache } from './redis/response-cache.ts';
export { type Config, ConfigError, loadConfig } from './service/config.ts';
export {
  createDynamoService,
  type DynamoQueryRoute,
  type DynamoService,
  deployedDynamoService,
} from './service/dynamo-service.ts';
export type { Handler, MutationInput, MutationRoute } from './service/handlers.ts';
export { createMigration, deployedMigration, type Migrated } from './service/migration.ts';
export {
  createService,
  deployedService,
  type QueryInput,
  type QueryRoute,
  type Service,
} from './service/postgres-service.ts';
export { createPurge, deployedPurge, type Purge, type PurgeAnswer } from './service/purge.ts';
export { lastSegment, storableText } from './service/text.ts';
