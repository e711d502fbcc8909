/**
 * What the function of the migrations is told, apart from the service's configuration: it
 * serves no request, and must start without that.
 */
import * as z from 'zod/mini';
import { ConfigError, type Environment, processEnvironment } from '../config.ts';

export interface MigrationSettings {
  /** The database itself (no proxy: a migration's lock is its session's), without a user or a password. */
  readonly databaseUrl: string;
  /** The master user's secret, as RDS keeps it: `{"username", "password"}`. */
  readonly secretArn: string;
}

const DATABASE_URL_SHAPE =
  'it names the database to migrate; set it to postgres://HOST:5432/DATABASE?sslmode=verify-full, without a password, which MIGRATE_SECRET_ARN holds';

const ENVIRONMENT = z.object({
  MIGRATE_DATABASE_URL: z
    .url(DATABASE_URL_SHAPE)
    .check(z.refine((url) => URL.parse(url)?.password === '', DATABASE_URL_SHAPE)),
  MIGRATE_SECRET_ARN: z
    .string("it names the master user's secret in Secrets Manager; set it to its ARN")
    .check(z.startsWith('arn:', "it must be the ARN of the master user's secret")),
});

/** @throws ConfigError that names every value that cannot be, and shows none: one may hold a password. */
export function loadMigrationSettings(
  environment: Environment = processEnvironment(),
): MigrationSettings {
  const parsed = ENVIRONMENT.safeParse(environment);
  if (parsed.success) {
    const { MIGRATE_DATABASE_URL, MIGRATE_SECRET_ARN } = parsed.data;
    return { databaseUrl: MIGRATE_DATABASE_URL, secretArn: MIGRATE_SECRET_ARN };
  }
  const whys = parsed.error.issues.map(({ path, message }) => {
    const name = path.join('.');
    return `${name} ${environment[name] ? 'cannot be used' : 'is not set'}: ${message}`;
  });
  throw new ConfigError([...new Set(whys)].join('; '));
}
