/** The composition root of the migrations at deployment. */
import type { Context } from 'aws-lambda';
import { withTimeout } from '../core/timeout.ts';
import { allowIamLogins } from '../postgres/iam-logins.ts';
import { createLogger } from './logger.ts';
import { answerCloudFormation, readCustomResourceRequest } from './migration/custom-resource.ts';
import { readMasterSecret } from './migration/master-secret.ts';
import { sessionUrl } from './migration/session-url.ts';
import type { MigrationSettings } from './settings/postgres.ts';
import { processEnvironment, readSettings } from './settings.ts';

export interface Migrated {
  /** The migrations that were applied now; none when the schema was there already. */
  readonly applied: readonly string[];
  /** The database roles that log in with IAM tokens; none outside of RDS. */
  readonly iamLogins: readonly string[];
}

/** Brings the database to the schema of this release; `migrate` for each folder, in order. */
export type Migrate = (databaseUrl: string, log: (line: string) => void) => Promise<string[]>;

export type MigrationHandler = (
  event: unknown,
  context: Pick<Context, 'getRemainingTimeInMillis'>,
) => Promise<Migrated>;

/** Kept free for the answer, with its retries. */
const ANSWER_MARGIN_MS = 30_000;

const NOTHING: Migrated = { applied: [], iamLogins: [] };

/**
 * Migrates when CloudFormation asks for it, and answers it whatever happens; when invoked by
 * hand, answers the caller, and throws. A Delete drops nothing.
 *
 * @param readSettings when called, so that CloudFormation hears of a wrong configuration too.
 */
export function createMigration(
  migrate: Migrate,
  readSettings: () => MigrationSettings,
): MigrationHandler {
  const logger = createLogger('backstop-migrate');
  const migrateNow = async (limitMs: number): Promise<Migrated> => {
    const { databaseUrl, secretArn } = readSettings();
    const url = sessionUrl(databaseUrl, await readMasterSecret(secretArn), limitMs);
    const applied = await migrate(url, (line) => logger.info(line));
    const migrated = { applied, iamLogins: await allowIamLogins(url) };
    logger.info('migrated', migrated);
    return migrated;
  };
  return async (event, context) => {
    const limitMs = context.getRemainingTimeInMillis() - ANSWER_MARGIN_MS;
    const run = () => withTimeout(migrateNow(limitMs), limitMs, () => notFinished(limitMs));
    const request = readCustomResourceRequest(event);
    if (!request) return run();
    const outcome = request.RequestType === 'Delete' ? NOTHING : await run().catch(asError);
    if (!(outcome instanceof Error)) {
      await answerCloudFormation(request);
      return outcome;
    }
    logger.error('The migration failed', outcome);
    await answerCloudFormation(request, outcome.message);
    return NOTHING;
  };
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}

function notFinished(limitMs: number): Error {
  const seconds = Math.round(limitMs / 1000);
  return new Error(
    `Not finished after ${seconds} s, so what was not committed is rolled back. Deploy again, or let someone run the migrations who has the time.`,
  );
}

/** The migrations of this deployment, from the function's environment. */
export function deployedMigration(migrate: Migrate): MigrationHandler {
  return createMigration(migrate, () => readSettings('migration', processEnvironment()).migration);
}
