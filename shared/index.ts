/** The library's whole public face. */

export {
  createService,
  deployedService,
  type QueryInput,
  type QueryRoute,
  type Service,
} from './compose.ts';
export {
  createDynamoService,
  type DynamoQueryRoute,
  type DynamoService,
  deployedDynamoService,
} from './compose-dynamo.ts';
export { createMigration, deployedMigration, type Migrated } from './compose-migration.ts';
export { createPurge, deployedPurge, type Purge, type PurgeAnswer } from './compose-purge.ts';
export { type Config, ConfigError, loadConfig } from './config.ts';
export { dynamoStore } from './dynamodb/dynamo-store.ts';
export { createTable, type Item, type Table, type TableOptions } from './dynamodb/table.ts';
export {
  type DynamoTx,
  dynamoWork,
  type Proposal,
  type Reader,
  type Write,
} from './dynamodb/work.ts';
export type { Handler, MutationInput, MutationRoute } from './handlers.ts';
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
export { lastSegment, storableText } from './http/text.ts';
export {
  type FastPath,
  type FastPathMode,
  LeaseLostError,
  NO_FAST_PATH,
  type Store,
  type StoredResponse,
  type Work,
} from './idempotency/contract.ts';
export {
  type IdempotencyOptions,
  idempotency,
  type KeyMode,
  type Once,
  type OnceContext,
} from './idempotency/middleware.ts';
export { type ProblemResponsesOptions, problemResponses } from './idempotency/problem-responses.ts';
export type { HandlerFault, Outcome, Report } from './idempotency/reports.ts';
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
export { createRedis, type RedisClient } from './redis/client.ts';
export { redisFastPath } from './redis/fast-path.ts';
export { redisResponseCache } from './redis/response-cache.ts';
