/** Postgres: its connections, its two stores, the purge and the migrations. */
import { ConfigError } from '../../core/config-error.ts';
import { checkPostgresUrl } from '../../core/server-urls.ts';
import { AWS_REGION, neededRegion } from './aws.ts';
import { ANSWER_MARGIN_MS, REQUEST_TIMEOUT_MS } from './requests.ts';
import {
  choice,
  component,
  type Environment,
  judged,
  needed,
  number,
  orElse,
  parsed,
  perFunction,
  refused,
  type Settings,
  url,
  wholeNumber,
} from './setting.ts';

const AUTH = choice(
  'BACKSTOP_DATABASE_AUTH',
  ['password', 'iam'],
  'What a connection signs in with: the password of the URL, or a token of its own.',
);

const DATABASE_URL = needed(
  url('DATABASE_URL', 'The Postgres that keeps the truth.', checkDatabaseUrl),
  'it names the Postgres that keeps the markers; set it to postgres://user@host:port/database',
);

/** How one signs in, and how long one waits for it. */
const CONNECTION = {
  auth: AUTH,
  awsRegion: AWS_REGION,
  connectTimeoutMs: number(
    'BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS',
    3000,
    'ms',
    'For one connection, signed in.',
  ),
};

export const DATABASE = judged(
  component('Postgres', {
    url: DATABASE_URL,
    ...CONNECTION,
    poolMax: number(
      'BACKSTOP_POOL_MAX',
      1,
      'connections',
      'Of one process. A Lambda answers one request at a time and needs one.',
    ),
    pipeline: choice(
      'BACKSTOP_PIPELINE',
      ['on', 'off'],
      'Whether statements are sent without waiting for the answers to those before. `off` is for a proxy that takes pipelines apart.',
    ),
  }),
  withToken,
);

const RETENTION_MS = number(
  'BACKSTOP_RETENTION_MS',
  3_600_000,
  'ms',
  'How long a replay of a marker is caught at the least.',
);

export const MARKERS = component('Markers', { retentionMs: RETENTION_MS });

const RECORD_RETENTION_MS = number(
  'BACKSTOP_RECORD_RETENTION_MS',
  172_800_000,
  'ms',
  'How long a record is replayed at the least, from its completion on.',
);

export const RECORDS = component('Records', {
  retentionMs: RECORD_RETENTION_MS,
  leaseMs: perFunction('BACKSTOP_LEASE_MS', (name) =>
    number(
      name,
      30_000,
      'ms',
      "How long a record's claim is left alone. Less than the longest request and its margin only with renewal.",
    ),
  ),
  leaseRenewal: choice(
    'BACKSTOP_LEASE_RENEWAL',
    ['off', 'on'],
    'Whether the work calls `tx.renewLease`, so that a lease may be shorter than a request.',
  ),
  answerMarginMs: ANSWER_MARGIN_MS,
});

export type RecordSettings = Settings<typeof RECORDS>;

/** @throws ConfigError for a lease that may pass while its request still runs. */
export function leaseOf(settings: RecordSettings, functionName: string): number {
  const { name, value } = settings.leaseMs(functionName);
  const leastMs = REQUEST_TIMEOUT_MS + settings.answerMarginMs;
  if (value >= leastMs || settings.leaseRenewal === 'on') return value;
  throw new ConfigError(
    `${name} is ${value}: a lease that passes while its request still runs lets another one start. Set it to ${leastMs} (the longest request and a margin) or more, or set BACKSTOP_LEASE_RENEWAL=on where the work calls tx.renewLease.`,
  );
}

export const PURGE = judged(
  component('Purge', {
    url: orElse(
      url(
        'PURGE_DATABASE_URL',
        'The same Postgres, for a role that may delete what has expired.',
        checkDatabaseUrl,
      ),
      DATABASE_URL,
    ),
    ...CONNECTION,
    markerRetentionMs: orElse(
      wholeNumber(
        'BACKSTOP_PURGE_RETENTION_MS',
        3_600_000,
        'ms',
        'The longest retention of any function with markers; what was promised counts where it is more.',
      ),
      RETENTION_MS,
    ),
    ownMarkerRetentionMs: RETENTION_MS,
    recordRetentionMs: RECORD_RETENTION_MS,
    marginMs: number(
      'BACKSTOP_PURGE_MARGIN_MS',
      300_000,
      'ms',
      'How much longer everything is kept: the longest request, the oldest transaction and the skew of clocks together.',
    ),
    batchRowsMax: number(
      'BACKSTOP_PURGE_BATCH_ROWS_MAX',
      50_000,
      'rows',
      'Of one batch, which aims at 25 to 50 ms below that.',
    ),
    loops: number('BACKSTOP_PURGE_LOOPS', 1, 'loops', 'In one invocation, on a connection each.'),
  }),
  ({ ownMarkerRetentionMs, ...purge }) => {
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
  },
);

export type PurgeSettings = Settings<typeof PURGE>;

const MIGRATE_URL_SHAPE =
  'it names the database to migrate; set it to postgres://HOST:5432/DATABASE?sslmode=verify-full, without a password, which MIGRATE_SECRET_ARN holds';

export const MIGRATION = component('Migrations', {
  databaseUrl: needed(
    url(
      'MIGRATE_DATABASE_URL',
      "The database itself (no proxy: a migration's lock is its session's), without a user or a password.",
      (name, text) => {
        if (URL.parse(text)?.password !== '') throw refused(name, text, MIGRATE_URL_SHAPE);
        checkPostgresUrl(name, text);
      },
    ),
    MIGRATE_URL_SHAPE,
  ),
  secretArn: needed(
    parsed(
      'MIGRATE_SECRET_ARN',
      'ARN',
      "The master user's secret, as RDS keeps it in Secrets Manager.",
      (text) => {
        if (text.startsWith('arn:')) return text;
        throw refused('MIGRATE_SECRET_ARN', text, "it must be the ARN of the master user's secret");
      },
    ),
    "it names the master user's secret in Secrets Manager; set it to its ARN",
  ),
});

export type MigrationSettings = Settings<typeof MIGRATION>;

/** In place of `auth`: what a token is signed for, or undefined where a password signs in. */
function withToken<Given extends { auth: 'password' | 'iam'; awsRegion: string | undefined }>({
  auth,
  awsRegion,
  ...rest
}: Given) {
  const tokenRegion = auth === 'iam' ? neededRegion(awsRegion, AUTH.name) : undefined;
  return { ...rest, tokenRegion };
}

/** A token is sent in clear text, so only the server that proves its name may read it. */
function checkDatabaseUrl(name: string, text: string, environment: Environment): void {
  checkPostgresUrl(name, text);
  if (environment[AUTH.name] !== 'iam') return;
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
