/** Signing in with IAM tokens, and what would send one where it may be read. */
import { describe, expect, test } from 'vitest';
import { ConfigError } from '../../shared/core/config-error.ts';
import { readSettings } from '../../shared/service/settings.ts';

const ROOTS = ['postgres', 'purge'] as const;

const KEYS = { AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE', AWS_SECRET_ACCESS_KEY: 'hush' };
const DATABASE = {
  DATABASE_URL: 'postgres://backstop_api:hunter2@host:5432/db?sslmode=verify-full',
  BACKSTOP_DATABASE_AUTH: 'iam',
  AWS_REGION: 'eu-central-1',
};
const REDIS = {
  DATABASE_URL: 'postgres://user@host/db',
  REDIS_URL: 'rediss://backstop-api:hunter2@cache:6379',
  BACKSTOP_REDIS_AUTH: 'iam',
  BACKSTOP_NAMESPACE: 'shop-prod',
  BACKSTOP_REDIS_CACHE_NAME: 'mine',
  AWS_REGION: 'eu-central-1',
  ...KEYS,
};

type Environment = Record<string, string | undefined>;

function refusal(environment: Environment): string {
  for (const root of ROOTS) {
    try {
      readSettings(root, environment);
    } catch (error) {
      if (error instanceof ConfigError) return error.message;
      throw error;
    }
  }
  throw new Error(`not refused: ${JSON.stringify(environment)}`);
}

test('each value is read from its variable', () => {
  const environment = { ...DATABASE, ...REDIS, DATABASE_URL: DATABASE.DATABASE_URL };
  expect(readSettings('postgres', environment)).toMatchObject({
    database: { tokenRegion: 'eu-central-1' },
    redis: { signIn: { cacheName: 'mine', region: 'eu-central-1' } },
  });
  expect(readSettings('purge', environment).purge).toMatchObject({ tokenRegion: 'eu-central-1' });
});

test('the credentials are read when they are asked for, the session with them', () => {
  const environment: Environment = { ...REDIS };
  const credentials = readSettings('postgres', environment).redis?.signIn?.credentials;
  const keys = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'hush' };
  expect(credentials?.()).toEqual({ ...keys, sessionToken: undefined });
  environment['AWS_SESSION_TOKEN'] = 'session';
  expect(credentials?.()).toEqual({ ...keys, sessionToken: 'session' });
  delete environment['AWS_ACCESS_KEY_ID'];
  expect(credentials).toThrow('AWS_ACCESS_KEY_ID is not set');
});

const MINIMAL = {
  ...DATABASE,
  BACKSTOP_NAMESPACE: 'shop-prod',
  DATABASE_URL: 'postgres://u@h/db?sslmode=verify-full',
};

describe('a refusal names the variable, why it cannot be, and what to set', () => {
  const cases: [string, Environment, string[]][] = [
    [
      'Redis without a namespace (C113)',
      { ...REDIS, BACKSTOP_NAMESPACE: undefined },
      ['BACKSTOP_NAMESPACE is not set', 'two deployments', 'service and stage: shop-prod'],
    ],
    [
      'a database without TLS',
      { ...DATABASE, DATABASE_URL: 'postgres://u:hunter2@h/db' },
      ['DATABASE_URL does not say sslmode=verify-full', 'clear text', 'Add ?sslmode=verify-full'],
    ],
    ...['require', 'no-verify', 'disable', 'verify-ca', 'verify-full&sslmode=disable'].map(
      (mode): [string, Environment, string[]] => [
        `a database with sslmode=${mode}`,
        { ...DATABASE, DATABASE_URL: `postgres://u:hunter2@h/db?sslmode=${mode}` },
        ['DATABASE_URL does not say sslmode=verify-full'],
      ],
    ),
    [
      "the purge's database without TLS",
      { ...DATABASE, PURGE_DATABASE_URL: 'postgres://u:hunter2@h/db' },
      ['PURGE_DATABASE_URL does not say sslmode=verify-full'],
    ],
    [
      'a database without a user',
      { ...DATABASE, DATABASE_URL: 'postgres://h/db?sslmode=verify-full' },
      ['DATABASE_URL names no user', 'signed for one', 'postgres://user@host'],
    ],
    [
      'a database that is no URL',
      { ...DATABASE, DATABASE_URL: 'host=h password=hunter2' },
      ['DATABASE_URL is no URL', 'postgres://user@host'],
    ],
    [
      'a database and no region',
      { ...DATABASE, AWS_REGION: undefined },
      ['AWS_REGION is not set', 'BACKSTOP_DATABASE_AUTH=iam', 'eu-central-1'],
    ],
    [
      'Redis without TLS',
      { ...REDIS, REDIS_URL: 'redis://u:hunter2@cache' },
      ['REDIS_URL is not a rediss:// URL', 'clear text', 'rediss://user@host:6379'],
    ],
    [
      'Redis without a user',
      { ...REDIS, REDIS_URL: 'rediss://:hunter2@cache' },
      ['REDIS_URL names no user', 'signed for one', 'rediss://user@host:6379'],
    ],
    [
      'Redis that is no URL',
      { ...REDIS, REDIS_URL: 'cache hunter2' },
      ['REDIS_URL is no URL', 'rediss://user@host:6379'],
    ],
    [
      'no name of the cache',
      { ...REDIS, BACKSTOP_REDIS_CACHE_NAME: '' },
      ['BACKSTOP_REDIS_CACHE_NAME is not set', 'signed for one cache', 'ElastiCache Serverless'],
    ],
    [
      'Redis and no region',
      { ...REDIS, AWS_REGION: undefined },
      ['AWS_REGION is not set', 'BACKSTOP_REDIS_AUTH=iam'],
    ],
    ...Object.keys(KEYS).map((name): [string, Environment, string[]] => [
      `no ${name}`,
      { ...REDIS, [name]: '' },
      [`${name} is not set`, 'BACKSTOP_REDIS_AUTH=iam', 'set AWS_ACCESS_KEY_ID'],
    ]),
    [
      'a cluster with databases',
      { ...MINIMAL, REDIS_URL: 'redis://:hunter2@cache/2', BACKSTOP_REDIS_MODE: 'cluster' },
      ['REDIS_URL names the database "2"', 'none but 0', 'Leave the path out'],
    ],
  ];
  test.each(cases)('the refusal is right for %s', (_what, environment, parts) => {
    const message = refusal(environment);
    expect(message.startsWith(parts[0] as string)).toBe(true);
    for (const part of parts) expect(message).toContain(part);
    expect(message).not.toMatch(/hunter2|hush/);
  });
});

test.each([
  ['no Redis asks for nothing', { ...MINIMAL, BACKSTOP_REDIS_AUTH: 'iam' }],
  ['a password may go without TLS', { ...MINIMAL, REDIS_URL: 'redis://u:p@cache/2' }],
  [
    'a cluster has a slash',
    { ...MINIMAL, REDIS_URL: 'redis://c/', BACKSTOP_REDIS_MODE: 'cluster' },
  ],
  [
    'a database has an authority of one’s own',
    { ...MINIMAL, DATABASE_URL: `${MINIMAL.DATABASE_URL}&sslrootcert=a` },
  ],
])('it is accepted that %s', (_what, environment) => {
  for (const root of ROOTS) expect(() => readSettings(root, environment)).not.toThrow();
});
