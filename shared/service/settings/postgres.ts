/** Postgres: its connections, its two stores, the purge and the migrations. */
import { ConfigError } from '../../core/config-error.ts';
import { checkPostgresUrl } from '../../core/server-urls.ts';
import { AWS_REGION, neededRegion } from './aws.ts';
import {
  component,
  type Environment,
  judged,
  type Settings,
  type SettingsOf,
} from './component.ts';
import { ANSWER_MARGIN_MS, REQUEST_TIMEOUT_MS } from './requests.ts';
import * as row from './row.ts';

// biome-ignore format: a table, with a row on each line
const CONNECTION = {
  auth: row.choice('BACKSTOP_DATABASE_AUTH', ['password', 'iam'], 'What a connection signs in with: the password of the URL, or a token of its own.'),
  awsRegion: AWS_REGION,
  connectTimeoutMs: row.ms('BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS', 3000, 'For one connection.'),
};

// biome-ignore format: a table, with a row on each line
export const DATABASE = judged(component('Postgres', {
  url: row.needed(
    row.url('DATABASE_URL', checkDatabaseUrl, 'The Postgres that keeps the truth.'),
    'it names the Postgres that keeps the markers; set it to postgres://user@host:port/database',
  ),
  ...CONNECTION,
  poolMax: row.count('BACKSTOP_POOL_MAX', 1, 'connections', 'Of one process. A Lambda answers one request at a time and needs one.'),
  pipeline: row.choice('BACKSTOP_PIPELINE', ['on', 'off'], 'Whether statements are sent without waiting for the answers to those before; `off` is for a proxy that takes pipelines apart.'),
}), withToken);

// biome-ignore format: a table, with a row on each line
export const MARKERS = component('Markers', {
  retentionMs: row.ms('BACKSTOP_RETENTION_MS', 3_600_000, 'How long a replay of a marker is caught at the least.'),
});

// biome-ignore format: a table, with a row on each line
export const RECORDS = component('Records', {
  retentionMs: row.ms('BACKSTOP_RECORD_RETENTION_MS', 172_800_000, 'How long a record is replayed at the least, from its completion on.'),
  leaseMs: row.perFunction('BACKSTOP_LEASE_MS', (name) => row.ms(name, 30_000, "How long a record's claim is left alone; less than the longest request and its margin only with renewal.")),
  leaseRenewal: row.choice('BACKSTOP_LEASE_RENEWAL', ['off', 'on'], 'Whether the work calls `tx.renewLease`.'),
  answerMarginMs: ANSWER_MARGIN_MS,
});

// biome-ignore format: a table, with a row on each line
const PURGE_TABLE = component('Purge', {
  url: row.orElse(row.url('PURGE_DATABASE_URL', checkDatabaseUrl, 'The same Postgres, for a role that may delete what has expired.'), DATABASE.rows.url),
  ...CONNECTION,
  markerRetentionMs: row.orElse(row.wholeNumber('BACKSTOP_PURGE_RETENTION_MS', 3_600_000, 'ms', 'The longest retention of any function with markers; what was promised counts where it is more.'), MARKERS.rows.retentionMs),
  ownMarkerRetentionMs: MARKERS.rows.retentionMs,
  recordRetentionMs: RECORDS.rows.retentionMs,
  marginMs: row.ms('BACKSTOP_PURGE_MARGIN_MS', 300_000, 'How much longer everything is kept: the longest request, the oldest transaction and the skew of clocks together.'),
  batchRowsMax: row.count('BACKSTOP_PURGE_BATCH_ROWS_MAX', 50_000, 'rows', 'Of one batch, which aims at 25 to 50 ms below that.'),
  loops: row.count('BACKSTOP_PURGE_LOOPS', 1, 'loops', 'In one invocation, on a connection each.'),
});

export const PURGE = judged(PURGE_TABLE, ({ ownMarkerRetentionMs, ...purge }) => {
  if (purge.markerRetentionMs < ownMarkerRetentionMs) {
    throw new ConfigError(
      `BACKSTOP_PURGE_RETENTION_MS is ${purge.markerRetentionMs}, less than the ${ownMarkerRetentionMs} of BACKSTOP_RETENTION_MS: the purge would delete markers that still catch replays. Set it to the longest retention of any function.`,
    );
  }
  if (purge.marginMs <= REQUEST_TIMEOUT_MS) {
    throw new ConfigError(
      `BACKSTOP_PURGE_MARGIN_MS is ${purge.marginMs}, less than the longest request (${REQUEST_TIMEOUT_MS}): a claim could be purged while its request still runs. Set it to 300000.`,
    );
  }
  return withToken(purge);
});

const MIGRATE_URL_SHAPE =
  'it names the database to migrate; set it to postgres://HOST:5432/DATABASE?sslmode=verify-full, without a password, which MIGRATE_SECRET_ARN holds';

// biome-ignore format: a table, with a row on each line
export const MIGRATION = component('Migrations', {
  databaseUrl: row.needed(row.url('MIGRATE_DATABASE_URL', checkMigrateUrl, "The database itself (no proxy: a migration's lock is its session's), without a user or a password."), MIGRATE_URL_SHAPE),
  secretArn: row.needed(
    row.parsed('MIGRATE_SECRET_ARN', 'ARN', "The master user's secret, as RDS keeps it in Secrets Manager.", checkArn),
    "it names the master user's secret in Secrets Manager; set it to its ARN",
  ),
});

export type RecordSettings = Settings<typeof RECORDS>;
export type PurgeSettings = Settings<typeof PURGE>;
export type MigrationSettings = Settings<typeof MIGRATION>;

/** @throws ConfigError for a lease that may pass while its request still runs. */
export function leaseOf(settings: RecordSettings, functionName: string): number {
  const { name, value } = settings.leaseMs(functionName);
  const leastMs = REQUEST_TIMEOUT_MS + settings.answerMarginMs;
  if (value >= leastMs || settings.leaseRenewal === 'on') return value;
  throw new ConfigError(
    `${name} is ${value}: a lease that passes while its request still runs lets another one start. Set it to ${leastMs} (the longest request and a margin) or more, or set BACKSTOP_LEASE_RENEWAL=on where the work calls tx.renewLease.`,
  );
}

/** In place of `auth`: what a token is signed for, or undefined where a password signs in. */
function withToken<Given extends SettingsOf<typeof CONNECTION>>({
  auth,
  awsRegion,
  ...rest
}: Given) {
  const { name } = CONNECTION.auth;
  return { ...rest, tokenRegion: auth === 'iam' ? neededRegion(awsRegion, name) : undefined };
}

function checkMigrateUrl(name: string, text: string): void {
  if (!URL.canParse(text) || new URL(text).password !== '')
    throw row.refused(name, text, MIGRATE_URL_SHAPE);
  checkPostgresUrl(name, text);
}

function checkArn(text: string, name: string): string {
  if (text.startsWith('arn:')) return text;
  throw row.refused(name, text, "it must be the ARN of the master user's secret");
}

/** A token is sent in clear text, so only the server that proves its name may read it. */
function checkDatabaseUrl(name: string, text: string, environment: Environment): void {
  checkPostgresUrl(name, text);
  if (environment[CONNECTION.auth.name] !== 'iam') return;
  const url = new URL(text);
  if (url.searchParams.getAll('sslmode').join() !== 'verify-full') {
    throw new ConfigError(
      `${name} does not say sslmode=verify-full: with BACKSTOP_DATABASE_AUTH=iam each connection sends a token in clear text, which only the server that proves its name may read. Add ?sslmode=verify-full (and &sslrootcert=FILE where Node does not know its authority).`,
    );
  }
  if (url.username === '') {
    throw new ConfigError(
      `${name} names no user: with BACKSTOP_DATABASE_AUTH=iam a token is signed for one. Set it to postgres://user@host:5432/database?sslmode=verify-full.`,
    );
  }
}
