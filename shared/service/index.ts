/** A whole service: settings from the environment, logger, metrics, handlers, purge, migration. */

export { ConfigError } from '../core/config-error.ts';
export {
  createDynamoService,
  type DynamoQueryRoute,
  type DynamoService,
  deployedDynamoService,
} from './dynamo-service.ts';
export type { Handler, MutationInput, MutationRoute } from './handlers.ts';
export { createMigration, deployedMigration, type Migrate, type Migrated } from './migration.ts';
export {
  createService,
  deployedService,
  type QueryInput,
  type QueryRoute,
  type Service,
} from './postgres-service.ts';
export { createPurge, deployedPurge, type Purge, type PurgeResult } from './purge.ts';
export { storableText } from './text.ts';
