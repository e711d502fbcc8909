/**
 * The one reader of `process.env`. Every value is checked at start, with a message
 * that says which it is, why it cannot be and what to set.
 */
import * as z from 'zod/mini';
import { ConfigError } from '../core/config-error.ts';
import { RESOLVE_MS } from '../core/contract.ts';
import {
  awsCredentialsOf,
  type ConnectionConfig,
  refuseUnsafeConnections,
} from './config-connections.ts';
import { refuseUnknownNames } from './config-names.ts';

export { ConfigError } from '../core/config-error.ts';

/** The longest that a request may take: the HTTP API gives up after 30 s. */
const REQUEST_TIMEOUT_MS = 28_000;

/** Two clocks that are five minutes off each, which is as far as AWS takes a signature. */
const DYNAMO_TTL_SLACK_LEAST_MS = 2 * 300_000 + REQUEST_TIMEOUT_MS;

const wholeNumber = (usual: number) => {
  const error = `it must be a whole number above 0; set it to ${usual}, or leave it out`;
  return z.coerce.number(error).check(z.int(error), z.positive(error));
};

const positive = (fallback: number) => z._default(wholeNumber(fallback), fallback);

const STAGE_ERROR = 'it must be 1 to 64 letters, digits, - and _, such as "prod"';

const choice = <Value extends string>(values: readonly [Value, ...Value[]]) =>
  z.enum(values, `set it to ${values.map((value) => `"${value}"`).join(' or ')}, or leave it out`);

const ENVIRONMENT = z.object({
  DATABASE_URL: z.string(
    'it names the Postgres that keeps the markers; set it to postgres://user@host:port/database',
  ),
  PURGE_DATABASE_URL: z.optional(z.string()),
  BACKSTOP_DATABASE_AUTH: z._default(choice(['password', 'iam']), 'password'),
  REDIS_URL: z.optional(z.string()),
  BACKSTOP_REDIS_MODE: z._default(choice(['single', 'cluster']), 'single'),
  BACKSTOP_REDIS_AUTH: z._default(choice(['password', 'iam']), 'password'),
  BACKSTOP_REDIS_CACHE_NAME: z.optional(z.string()),
  BACKSTOP_NAMESPACE: z.optional(z.string()),
  BACKSTOP_CACHE_EPOCH: positive(1),
  DYNAMODB_ENDPOINT: z.optional(z.string()),
  DYNAMODB_TABLE: z._default(z.string(), 'backstop'),
  AWS_REGION: z.optional(z.string()),
  BACKSTOP_STAGE: z._default(z.string().check(z.regex(/^[\w-]{1,64}$/, STAGE_ERROR)), 'local'),
  BACKSTOP_PIPELINE: z._default(choice(['on', 'off']), 'on'),
  BACKSTOP_POOL_MAX: positive(1),
  BACKSTOP_RETENTION_MS: positive(3_600_000),
  BACKSTOP_PURGE_RETENTION_MS: z.optional(wholeNumber(3_600_000)),
  BACKSTOP_PURGE_MARGIN_MS: positive(300_000),
  BACKSTOP_PURGE_BATCH_ROWS_MAX: positive(50_000),
  BACKSTOP_PURGE_LOOPS: positive(1),
  BACKSTOP_RECORD_RETENTION_MS: positive(172_800_000),
  BACKSTOP_DYNAMO_RETENTION_MS: positive(172_800_000),
  BACKSTOP_DYNAMO_TTL_SLACK_MS: positive(3_600_000),
  BACKSTOP_DYNAMO_CONNECT_TIMEOUT_MS: positive(1000),
  BACKSTOP_DYNAMO_REQUEST_TIMEOUT_MS: positive(2000),
  BACKSTOP_LEASE_MS: positive(30_000),
  BACKSTOP_LEASE_RENEWAL: z._default(choice(['on', 'off']), 'off'),
  BACKSTOP_ANSWER_MARGIN_MS: positive(1000),
  BACKSTOP_FAST_PATH: z._default(choice(['first', 'parallel']), 'first'),
  BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: positive(100),
  BACKSTOP_REDIS_CONNECT_BUDGET_MS: positive(250),
  BACKSTOP_REDIS_COOL_DOWN_MS: positive(1000),
  BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS: positive(3000),
  BACKSTOP_BODY_BYTES_MAX: positive(262_144),
  BACKSTOP_STORED_BODY_BYTES_MAX: positive(262_144),
  BACKSTOP_KEY_MODE: z._default(choice(['required', 'optional']), 'required'),
  BACKSTOP_ISSUER_ALIASES: z._default(z.string(), ''),
  BACKSTOP_PROBLEM_BASE_URL: z._default(z.string(), 'https://backstop.example/problems/'),
});

export type KeyMode = 'required' | 'optional';

export interface Config extends ConnectionConfig {
  readonly dynamoTable: string;
  /** A dimension of every metric, so that two stages of one account are told apart. */
  readonly stage: string;
  readonly pipeline: boolean;
  readonly poolMax: number;
  /** How long a replay is caught at the least. */
  readonly retentionMs: number;
  /** The longest retention of any function that shares the table. */
  readonly purgeRetentionMs: number;
  /** The longest request, the oldest transaction and the skew together. */
  readonly purgeMarginMs: number;
  readonly purgeBatchRowsMax: number;
  /** How many loops one invocation of the purge runs, on a connection each. */
  readonly purgeLoops: number;
  readonly answerMarginMs: number;
  readonly requestTimeoutMs: number;
  /** Redis first and then the store, or both at once; see `FastPathMode`. */
  readonly fastPathMode: 'first' | 'parallel';
  readonly redisCommandTimeoutMs: number;
  readonly redisConnectBudgetMs: number;
  readonly redisCoolDownMs: number;
  readonly databaseConnectTimeoutMs: number;
  readonly bodyBytesMax: number;
  readonly storedBodyBytesMax: number;
  /** How long a durable record is replayed at the least, from its completion on. */
  readonly recordRetentionMs: number;
  /** How long a response in DynamoDB is replayed at the least. */
  readonly dynamoRetentionMs: number;
  /** How much later than that DynamoDB may delete it. */
  readonly dynamoTtlSlackMs: number;
  readonly dynamoConnectTimeoutMs: number;
  /** For one send; a lost one is sent again, within the request's time. */
  readonly dynamoRequestTimeoutMs: number;
  /**
   * How long a record's claim is left alone, per function: `BACKSTOP_LEASE_MS_CREATE_PURCHASE`,
   * else `BACKSTOP_LEASE_MS`. Less than the longest run only with `BACKSTOP_LEASE_RENEWAL=on`.
   */
  leaseMs(functionName: string): number;
  /** Per function: `BACKSTOP_KEY_MODE_SPEND_COINS=optional`, else `BACKSTOP_KEY_MODE`. */
  keyMode(functionName: string): KeyMode;
  readonly issuerAliases: Readonly<Record<string, string>>;
  readonly problemBaseUrl: string;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** For whoever has settings of its own: nobody else reads `process.env`. */
export const processEnvironment = (): Environment => process.env;

/** @throws ConfigError that names every value that cannot be. */
export function loadConfig(environment: Environment = processEnvironment()): Config {
  // An empty variable is how many tools spell an absent one.
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
  refuseUnknownNames(Object.keys(given), Object.keys(ENVIRONMENT.shape));
  const parsed = ENVIRONMENT.safeParse(given);
  if (!parsed.success) throw new ConfigError(refusals(parsed.error.issues, given));
  const env = parsed.data;
  const config: Config = {
    databaseUrl: env.DATABASE_URL,
    purgeDatabaseUrl: env.PURGE_DATABASE_URL ?? env.DATABASE_URL,
    databaseAuth: env.BACKSTOP_DATABASE_AUTH,
    redisUrl: env.REDIS_URL,
    redisMode: env.BACKSTOP_REDIS_MODE,
    redisAuth: env.BACKSTOP_REDIS_AUTH,
    redisCacheName: env.BACKSTOP_REDIS_CACHE_NAME,
    namespace: env.BACKSTOP_NAMESPACE,
    cacheEpoch: env.BACKSTOP_CACHE_EPOCH,
    awsCredentials: () => awsCredentialsOf(environment),
    dynamoEndpoint: env.DYNAMODB_ENDPOINT,
    dynamoTable: env.DYNAMODB_TABLE,
    awsRegion: env.AWS_REGION,
    stage: env.BACKSTOP_STAGE,
    pipeline: env.BACKSTOP_PIPELINE === 'on',
    poolMax: env.BACKSTOP_POOL_MAX,
    retentionMs: env.BACKSTOP_RETENTION_MS,
    purgeRetentionMs: env.BACKSTOP_PURGE_RETENTION_MS ?? env.BACKSTOP_RETENTION_MS,
    purgeMarginMs: env.BACKSTOP_PURGE_MARGIN_MS,
    purgeBatchRowsMax: env.BACKSTOP_PURGE_BATCH_ROWS_MAX,
    purgeLoops: env.BACKSTOP_PURGE_LOOPS,
    answerMarginMs: env.BACKSTOP_ANSWER_MARGIN_MS,
    requestTimeoutMs: REQUEST_TIMEOUT_MS,
    fastPathMode: env.BACKSTOP_FAST_PATH,
    redisCommandTimeoutMs: env.BACKSTOP_REDIS_COMMAND_TIMEOUT_MS,
    redisConnectBudgetMs: env.BACKSTOP_REDIS_CONNECT_BUDGET_MS,
    redisCoolDownMs: env.BACKSTOP_REDIS_COOL_DOWN_MS,
    databaseConnectTimeoutMs: env.BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS,
    bodyBytesMax: env.BACKSTOP_BODY_BYTES_MAX,
    storedBodyBytesMax: env.BACKSTOP_STORED_BODY_BYTES_MAX,
    recordRetentionMs: env.BACKSTOP_RECORD_RETENTION_MS,
    dynamoRetentionMs: env.BACKSTOP_DYNAMO_RETENTION_MS,
    dynamoTtlSlackMs: env.BACKSTOP_DYNAMO_TTL_SLACK_MS,
    dynamoConnectTimeoutMs: env.BACKSTOP_DYNAMO_CONNECT_TIMEOUT_MS,
    dynamoRequestTimeoutMs: env.BACKSTOP_DYNAMO_REQUEST_TIMEOUT_MS,
    leaseMs: (functionName) => leaseOf(given, functionName, env),
    keyMode: (functionName) => keyModeOf(given, functionName, env.BACKSTOP_KEY_MODE),
    issuerAliases: parseAliases(env.BACKSTOP_ISSUER_ALIASES),
    problemBaseUrl: env.BACKSTOP_PROBLEM_BASE_URL,
  };
  refuseUnsafe(config);
  refuseUnsafeConnections(config);
  return config;
}

/** One refusal for each variable. None of those that may hold a password is ever refused with its value. */
function refusals(issues: z.core.$ZodIssue[], given: Environment): string {
  const whys = new Map(issues.map(({ path, message }) => [path.join('.'), message]));
  const whatIsIt = (name: string) => {
    if (given[name] === undefined) return 'is not set';
    return mayBeShown(name) ? `is "${given[name]}"` : 'cannot be used';
  };
  return [...whys].map(([name, why]) => `${name} ${whatIsIt(name)}: ${why}`).join('; ');
}

/** A password ends up in a URL, and by mistake in a setting that speaks of signing in. */
const mayBeShown = (name: string): boolean =>
  name.startsWith('BACKSTOP_') && !name.endsWith('_AUTH');

interface LeaseSettings {
  readonly BACKSTOP_LEASE_MS: number;
  readonly BACKSTOP_LEASE_RENEWAL: 'on' | 'off';
  readonly BACKSTOP_ANSWER_MARGIN_MS: number;
}

function leaseOf(environment: Environment, functionName: string, settings: LeaseSettings): number {
  const own = `BACKSTOP_LEASE_MS_${functionName.toUpperCase().replaceAll('-', '_')}`;
  const name = environment[own] === undefined ? 'BACKSTOP_LEASE_MS' : own;
  const leaseMs = Number(environment[own] ?? settings.BACKSTOP_LEASE_MS);
  const leastMs = REQUEST_TIMEOUT_MS + settings.BACKSTOP_ANSWER_MARGIN_MS;
  const isRenewed = settings.BACKSTOP_LEASE_RENEWAL === 'on';
  if (!Number.isInteger(leaseMs) || leaseMs <= 0 || (leaseMs < leastMs && !isRenewed)) {
    throw new ConfigError(
      `${name} is ${environment[name] ?? leaseMs}: a lease that passes while its request still runs lets another one start. Set it to ${leastMs} (the longest request and a margin) or more, or set BACKSTOP_LEASE_RENEWAL=on where the work calls tx.renewLease.`,
    );
  }
  return leaseMs;
}

function keyModeOf(environment: Environment, functionName: string, fallback: KeyMode): KeyMode {
  const name = `BACKSTOP_KEY_MODE_${functionName.toUpperCase().replaceAll('-', '_')}`;
  const value = environment[name] ?? fallback;
  if (value === 'required' || value === 'optional') return value;
  throw new ConfigError(`${name} is "${value}": set it to "required" or "optional"`);
}

/** `alias=issuer` pairs, separated by commas. */
function parseAliases(text: string): Record<string, string> {
  const pairs = text === '' ? [] : text.split(',').map((pair) => pair.trim());
  const aliases = new Map<string, string>();
  for (const pair of pairs) {
    const [, alias, issuer] = /^([\w-]+)=(.+)$/.exec(pair) ?? [];
    if (alias === undefined || issuer === undefined) {
      throw new ConfigError(
        `BACKSTOP_ISSUER_ALIASES has "${pair}": write alias=issuer, the alias in letters, digits, - and _, since it becomes part of every principal`,
      );
    }
    if (aliases.has(issuer) || [...aliases.values()].includes(alias)) {
      throw new ConfigError(
        `BACKSTOP_ISSUER_ALIASES repeats the alias or the issuer of "${pair}": the principals of two issuers must not be mixed up. Write alias=issuer once for each issuer.`,
      );
    }
    aliases.set(issuer, alias);
  }
  return Object.fromEntries(aliases);
}

/** Combinations that would break the promise, rather than merely fail. */
function refuseUnsafe(config: Config): void {
  if (config.purgeRetentionMs < config.retentionMs) {
    throw new ConfigError(
      `BACKSTOP_PURGE_RETENTION_MS is ${config.purgeRetentionMs}, less than the ${config.retentionMs} of BACKSTOP_RETENTION_MS: the purge would delete markers that still catch replays. Set it to the longest retention of any function.`,
    );
  }
  if (config.purgeMarginMs <= config.requestTimeoutMs) {
    throw new ConfigError(
      `BACKSTOP_PURGE_MARGIN_MS is ${config.purgeMarginMs}, less than the longest request (${config.requestTimeoutMs}): a claim could be purged while its request still runs. Set it to 300000.`,
    );
  }
  if (config.answerMarginMs < 800 || config.answerMarginMs >= config.requestTimeoutMs) {
    throw new ConfigError(
      `BACKSTOP_ANSWER_MARGIN_MS is ${config.answerMarginMs}: finding out what became of a lost COMMIT and publishing take up to 800, and it must stay below the request's ${config.requestTimeoutMs}. Set it to 1000.`,
    );
  }
  const leastMarginMs = RESOLVE_MS + 2 * config.redisCommandTimeoutMs;
  if (config.answerMarginMs < leastMarginMs) {
    const longer =
      leastMarginMs < config.requestTimeoutMs
        ? ` Or set BACKSTOP_ANSWER_MARGIN_MS to ${leastMarginMs}.`
        : '';
    throw new ConfigError(
      `BACKSTOP_REDIS_COMMAND_TIMEOUT_MS is ${config.redisCommandTimeoutMs}: finding out what became of a lost COMMIT (${RESOLVE_MS}) and two slow commands of Redis take ${leastMarginMs}, more than the ${config.answerMarginMs} of BACKSTOP_ANSWER_MARGIN_MS, and would outlast the request. Set it to ${Math.floor((config.answerMarginMs - RESOLVE_MS) / 2)} or less.${longer}`,
    );
  }
  if (config.dynamoTtlSlackMs < DYNAMO_TTL_SLACK_LEAST_MS) {
    throw new ConfigError(
      `BACKSTOP_DYNAMO_TTL_SLACK_MS is ${config.dynamoTtlSlackMs}, less than ${DYNAMO_TTL_SLACK_LEAST_MS} (two clocks, each five minutes off, and the longest request): DynamoDB could delete a marker before its retention is over. Set it to 3600000.`,
    );
  }
}
