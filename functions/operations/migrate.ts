import { deployedMigration } from '../../shared/service/index.ts';
import { migrateAll } from './migrations.ts';

/** Called by CloudFormation at deployment (infra/migrations.yml), or by hand with any event. */
export const handler = deployedMigration(migrateAll);
