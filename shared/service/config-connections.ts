/** How the service signs in to its servers, and what would send a secret where it may be read. */
import { ConfigError } from '../core/config-error.ts';
import { checkHttpUrl, checkPostgresUrl, checkRedisUrl } from '../core/server-urls.ts';

export interface ConnectionConfig {
  readonly databaseUrl: string;
  readonly purgeDatabaseUrl: string;
  /** `iam`: each connection signs in with a token, in place of a password from the URL. */
  readonly databaseAuth: 'password' | 'iam';
  /** Undefined: no fast path. */
  readonly redisUrl: string | undefined;
  readonly redisMode: 'single' | 'cluster';
  readonly redisAuth: 'password' | 'iam';
  /** Undefined: DynamoDB itself, in `awsRegion`. */
  readonly dynamoEndpoint: string | undefined;
  /** The ElastiCache Serverless cache that tokens are signed for. */
  readonly redisCacheName: string | undefined;
  /** Names this deployment in every Redis key; never undefined where there is a Redis. */
  readonly namespace: string | undefined;
  /** In every Redis key; raised when the database was restored. */
  readonly cacheEpoch: number;
  readonly awsRegion: string | undefined;
  /**
   * Read anew at each call, since whoever runs this process may replace them.
   *
   * @throws ConfigError when there are none.
   */
  awsCredentials(): AwsCredentials;
}

export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Of a role; a user's long-lived keys have none. */
  readonly sessionToken: string | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** @throws ConfigError for a sign-in that cannot be, or not safely. No URL is repeated: it may hold a password. */
export function refuseUnsafeConnections(config: ConnectionConfig): void {
  checkPostgresUrl('DATABASE_URL', config.databaseUrl);
  checkPostgresUrl('PURGE_DATABASE_URL', config.purgeDatabaseUrl);
  if (config.redisUrl !== undefined) checkRedisUrl('REDIS_URL', config.redisUrl);
  if (config.dynamoEndpoint !== undefined) checkHttpUrl('DYNAMODB_ENDPOINT', config.dynamoEndpoint);
  if (config.databaseAuth === 'iam') {
    needRegion(config, 'BACKSTOP_DATABASE_AUTH');
    refuseUnsafeDatabase('DATABASE_URL', config.databaseUrl);
    refuseUnsafeDatabase('PURGE_DATABASE_URL', config.purgeDatabaseUrl);
  }
  if (config.redisUrl === undefined) return;
  if (config.namespace === undefined) {
    throw new ConfigError(
      "BACKSTOP_NAMESPACE is not set: without it two deployments on the Redis of REDIS_URL would replay each other's answers. Set it to the name of this deployment, such as its service and stage: shop-prod.",
    );
  }
  if (config.redisMode === 'cluster') refuseNoCluster(config.redisUrl);
  if (config.redisAuth === 'iam') {
    needRegion(config, 'BACKSTOP_REDIS_AUTH');
    refuseUnsafeRedis(config.redisUrl, config.redisCacheName);
    config.awsCredentials();
  }
}

/** @throws ConfigError unless the environment holds them, as a Lambda's does. */
export function awsCredentialsOf(environment: Environment): AwsCredentials {
  const read = (name: string): string => {
    const value = environment[name];
    if (value) return value;
    throw new ConfigError(
      `${name} is not set: with BACKSTOP_REDIS_AUTH=iam tokens are signed with the credentials in the environment. Lambda sets it; elsewhere set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN for a role).`,
    );
  };
  return {
    accessKeyId: read('AWS_ACCESS_KEY_ID'),
    secretAccessKey: read('AWS_SECRET_ACCESS_KEY'),
    sessionToken: environment['AWS_SESSION_TOKEN'] || undefined,
  };
}

function needRegion({ awsRegion }: ConnectionConfig, because: string): void {
  if (awsRegion !== undefined) return;
  throw new ConfigError(
    `AWS_REGION is not set: with ${because}=iam a token is signed for one region. Set it to the region of the server, such as eu-central-1.`,
  );
}

function refuseUnsafeDatabase(name: string, text: string): void {
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

function refuseNoCluster(text: string): void {
  const { pathname } = new URL(text);
  if (pathname !== '' && pathname !== '/') {
    throw new ConfigError(
      `REDIS_URL names the database "${pathname.slice(1)}": with BACKSTOP_REDIS_MODE=cluster there is none but 0. Leave the path out.`,
    );
  }
}

function refuseUnsafeRedis(text: string, cacheName: string | undefined): void {
  const { protocol, username } = new URL(text);
  if (protocol !== 'rediss:') {
    throw new ConfigError(
      'REDIS_URL is not a rediss:// URL: with BACKSTOP_REDIS_AUTH=iam each connection sends a token in clear text, which only the server that proves its name may read. Set it to rediss://user@host:6379.',
    );
  }
  if (username === '') {
    throw new ConfigError(
      'REDIS_URL names no user: with BACKSTOP_REDIS_AUTH=iam a token is signed for one. Set it to rediss://user@host:6379.',
    );
  }
  if (cacheName === undefined) {
    throw new ConfigError(
      'BACKSTOP_REDIS_CACHE_NAME is not set: with BACKSTOP_REDIS_AUTH=iam a token is signed for one cache. Set it to the name of the ElastiCache Serverless cache.',
    );
  }
}
