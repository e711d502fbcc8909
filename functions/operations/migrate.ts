import { deployedMigration } from '../../shared/index.ts';

/**
 * Called by CloudFormation at deployment (infra/migrations.yml), or by hand with any event.
 * The deployed package keeps the folders of the repository, so that the `.sql` files are found
 * from both.
 */
export const handler = deployedMigration(`${import.meta.dirname}/../../shared/postgres/migrations`);
