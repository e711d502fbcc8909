/** URLs of servers are judged when they are given, and never repeated. */
import { describe, expect, test } from 'vitest';
import { ConfigError } from '../../shared/core/config-error.ts';
import { createDatabase } from '../../shared/postgres/index.ts';
import { createRedis } from '../../shared/redis/index.ts';
import { readSettings } from '../../shared/service/settings.ts';

const PASSWORD = 'hunter2';

function refusalOf(make: () => unknown): string {
  try {
    make();
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error('not refused');
}

const redisAt = (url: string) => {
  createRedis({ url, commandTimeoutMs: 100, onError: () => {} }).disconnect();
};
const databaseAt = (connectionString: string) =>
  createDatabase({
    connectionString,
    max: 1,
    pipeline: true,
    connectTimeoutMs: 1,
    onIdleError: () => {},
  });

interface Given {
  readonly start: (url: string) => unknown;
  /** Makes the client itself; undefined where no client of ours takes it. */
  readonly make?: (url: string) => unknown;
  readonly scheme: string;
  readonly bad: readonly (readonly [string, string])[];
  readonly good: readonly string[];
}

const environment = { DATABASE_URL: 'postgres://user@host/db', BACKSTOP_NAMESPACE: 'test' };
const BAD = (scheme: string, path: string) =>
  [
    ['not a url', 'is no URL'],
    ['localhost', 'is no URL'],
    ['localhost:6379', 'is no URL'],
    [`mysql://u:${PASSWORD}@host${path}`, `must begin with ${scheme}`],
    [`http//u:${PASSWORD}@host${path}`, 'is no URL'],
    [`${scheme}u:${PASSWORD}#x@host${path}`, '# as %23'],
    [`${scheme}u:${PASSWORD}/x@host${path}`, '/ as %2F'],
    [`${scheme}u:1234/${PASSWORD}@host${path}`, '/ as %2F'],
    [`${scheme}u:${PASSWORD}?x@host${path}`, '? as %3F'],
    [`${scheme}u:${PASSWORD}@x@host${path}`, '@ as %40'],
    [`${scheme}u:${PASSWORD}%@host${path}`, '% as %25'],
    [`${scheme}u:${PASSWORD}%zz@host${path}`, '% as %25'],
    [`${scheme}u:${PASSWORD}%ff@host${path}`, '% as %25'],
    [`${scheme}u:${PASSWORD}@host:port${path}`, 'a port that is no number'],
    [`${scheme}u:${PASSWORD}@host:0${path}`, 'a port that is no number'],
    [`${scheme}u:${PASSWORD}@host:65536${path}`, 'a port that is no number'],
    [`${scheme}u:${PASSWORD}@${path}`, 'names no host'],
    [`${scheme}${path}`, 'names no host'],
    [`${scheme}u:${PASSWORD}@host${path}\n`, 'white space'],
    [`${scheme}u:${PASSWORD}@ho<st${path}`, 'cannot be'],
  ] as const;

const GIVEN: Record<string, Given> = {
  DATABASE_URL: {
    start: (url) => readSettings('postgres', { ...environment, DATABASE_URL: url }),
    make: databaseAt,
    scheme: 'postgres://',
    bad: BAD('postgres://', '/db'),
    good: [
      'postgres://host/db',
      'postgresql://u:p%23%2F%25%40%3F@host:5432/db?sslmode=verify-full&sslrootcert=/a/b.pem',
      'postgres://u:p@[::1]:5432/db',
      'postgres:///db?host=/var/run/postgresql&user=u',
      'postgres://u@%2Fvar%2Frun/db',
    ],
  },
  PURGE_DATABASE_URL: {
    start: (url) => readSettings('purge', { PURGE_DATABASE_URL: url }),
    scheme: 'postgres://',
    bad: BAD('postgres://', '/db'),
    good: ['postgres://u:p@host/db'],
  },
  REDIS_URL: {
    start: (url) => readSettings('postgres', { ...environment, REDIS_URL: url }),
    make: redisAt,
    scheme: 'redis://',
    bad: [
      ...BAD('redis://', ''),
      [`redis://u:${PASSWORD}@host/zero`, 'a path that is no number'],
      [`redis://u:${PASSWORD}@host/0/1`, 'a path that is no number'],
      [`redis://u:${PASSWORD}@host/-1`, 'a path that is no number'],
    ],
    good: [
      'redis://host',
      'rediss://u:p%23@host:6379/2',
      'redis://:p@127.0.0.1:6379/',
      'redis://[::1]:6379',
    ],
  },
  DYNAMODB_ENDPOINT: {
    start: (url) => readSettings('dynamodb', { DYNAMODB_ENDPOINT: url }),
    scheme: 'http://',
    bad: BAD('http://', ''),
    good: ['http://127.0.0.1:8000', 'https://dynamodb.eu-central-1.amazonaws.com/'],
  },
};

describe.each(Object.entries(GIVEN))('the setting %s', (name, { start, make, bad, good }) => {
  test.each(bad)('the URL %j is refused at start, and not shown (C119)', (url, why) => {
    const message = refusalOf(() => start(url));
    expect(message).toContain(why);
    expect(message.startsWith(`${name} `)).toBe(true);
    expect(message).toContain('Set it to');
    expect(message).not.toContain(PASSWORD);
    expect(message).not.toContain('1234');
  });

  test.each(good)('the URL %s is accepted', (url) => {
    start(url);
    make?.(url);
  });

  if (make)
    test.each(bad)('a client is not made of the URL %j (C119)', (url, why) => {
      const message = refusalOf(() => make?.(url));
      expect(message).toContain(why);
      expect(message).toMatch(/^create\w+'s \w+ /);
      expect(message).not.toContain(PASSWORD);
    });
});
