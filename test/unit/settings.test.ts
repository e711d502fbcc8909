import { describe, expect, test } from 'vitest';
import { ConfigError } from '../../shared/core/config-error.ts';
import type { Environment } from '../../shared/service/settings/component.ts';
import { leaseOf } from '../../shared/service/settings/postgres.ts';
import { readSettings } from '../../shared/service/settings.ts';

const DATABASE_URL = 'postgres://user:hunter2@host/db';
const load = (environment: Environment = {}) =>
  readSettings('postgres', { DATABASE_URL, ...environment });
const loadPurge = (environment: Environment = {}) =>
  readSettings('purge', { DATABASE_URL, ...environment }).purge;
const loadDynamo = (environment: Environment = {}) => readSettings('dynamodb', environment);

/** Of whichever root reads the variables. */
function refusal(environment: Environment): string {
  const messages = [load, loadPurge, loadDynamo].flatMap((read) => {
    try {
      read(environment);
      return [];
    } catch (error) {
      if (error instanceof ConfigError) return [error.message];
      throw error;
    }
  });
  if (messages[0] !== undefined) return messages[0];
  throw new Error(`not refused: ${JSON.stringify(environment)}`);
}

describe('a setting that is absent has its default', () => {
  test('a service on Postgres has its defaults', () => {
    const { requests, records, ...values } = load();
    const { keyMode, ...plain } = requests;
    const { leaseMs, ...ofRecords } = records;
    expect({ ...values, requests: plain, records: ofRecords }).toEqual({
      service: { stage: 'local' },
      requests: {
        cacheMode: 'first',
        issuerAliases: {},
        problemBaseUrl: 'https://backstop.example/problems/',
        answerMarginMs: 1000,
        bodyBytesMax: 256 * 1024,
        storedBodyBytesMax: 256 * 1024,
      },
      database: {
        url: DATABASE_URL,
        tokenRegion: undefined,
        connectTimeoutMs: 3000,
        poolMax: 1,
        pipeline: 'on',
      },
      markers: { retentionMs: 60 * 60 * 1000 },
      records: { retentionMs: 48 * 60 * 60 * 1000, leaseRenewal: 'off', answerMarginMs: 1000 },
      redis: undefined,
    });
    expect(keyMode('spend-coins').value).toBe('required');
    expect(leaseMs('create-purchase').value).toBe(30_000);
  });

  test('Redis has its defaults', () => {
    const { redis } = load({ REDIS_URL: 'redis://host', BACKSTOP_NAMESPACE: 'shop-prod' });
    expect(redis).toEqual({
      url: 'redis://host',
      mode: 'single',
      namespace: 'shop-prod',
      epoch: 1,
      commandTimeoutMs: 100,
      connectBudgetMs: 250,
      coolDownMs: 1000,
      signIn: undefined,
    });
  });

  test('the purge has its defaults', () => {
    expect(loadPurge()).toEqual({
      url: DATABASE_URL,
      tokenRegion: undefined,
      connectTimeoutMs: 3000,
      markerRetentionMs: 60 * 60 * 1000,
      recordRetentionMs: 48 * 60 * 60 * 1000,
      marginMs: 5 * 60 * 1000,
      batchRowsMax: 50_000,
      loops: 1,
    });
  });

  test('DynamoDB has its defaults', () => {
    expect(loadDynamo().dynamodb).toEqual({
      endpoint: undefined,
      awsRegion: undefined,
      table: 'backstop',
      retentionMs: 48 * 60 * 60 * 1000,
      ttlSlackMs: 60 * 60 * 1000,
      connectTimeoutMs: 1000,
      requestTimeoutMs: 2000,
    });
  });
});

describe('a root asks for nothing that only others read', () => {
  test('a service on DynamoDB starts without a database', () => {
    expect(loadDynamo({ DYNAMODB_TABLE: 'mine' })).toMatchObject({ redis: undefined });
  });

  test('the purge starts with a Redis that a service would refuse', () => {
    expect(loadPurge({ REDIS_URL: 'redis://host' }).url).toBe(DATABASE_URL);
  });

  test('the purge starts with its own database alone', () => {
    const url = 'postgres://purge@host/db';
    expect(readSettings('purge', { PURGE_DATABASE_URL: url }).purge.url).toBe(url);
  });

  test('a service on Postgres starts whatever the others are told', () => {
    load({ DYNAMODB_ENDPOINT: 'no url', PURGE_DATABASE_URL: 'no url', BACKSTOP_PURGE_LOOPS: '0' });
  });
});

test('an empty variable is an absent one', () => {
  const empty = { REDIS_URL: '', PURGE_DATABASE_URL: '', BACKSTOP_POOL_MAX: '' };
  expect(load(empty)).toMatchObject({ redis: undefined, database: { poolMax: 1 } });
  expect(loadPurge(empty).url).toBe(DATABASE_URL);
});

describe('each value is read from its variable', () => {
  test('a service on Postgres reads its own', () => {
    const settings = load({
      REDIS_URL: 'redis://host',
      BACKSTOP_STAGE: 'prod-2',
      BACKSTOP_NAMESPACE: 'shop-prod',
      BACKSTOP_CACHE_EPOCH: '2',
      BACKSTOP_CACHE_MODE: 'parallel',
      BACKSTOP_PIPELINE: 'off',
      BACKSTOP_POOL_MAX: '2',
      BACKSTOP_RETENTION_MS: '7200000',
      BACKSTOP_ANSWER_MARGIN_MS: '2000',
      BACKSTOP_REDIS_MODE: 'cluster',
      BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '101',
      BACKSTOP_REDIS_CONNECT_BUDGET_MS: '251',
      BACKSTOP_REDIS_COOL_DOWN_MS: '1001',
      BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS: '3001',
      BACKSTOP_BODY_BYTES_MAX: '4',
      BACKSTOP_STORED_BODY_BYTES_MAX: '5',
      BACKSTOP_RECORD_RETENTION_MS: '6',
      BACKSTOP_PROBLEM_BASE_URL: 'https://p.example/',
    });
    expect(settings).toMatchObject({
      service: { stage: 'prod-2' },
      requests: {
        cacheMode: 'parallel',
        answerMarginMs: 2000,
        bodyBytesMax: 4,
        storedBodyBytesMax: 5,
        problemBaseUrl: 'https://p.example/',
      },
      database: { pipeline: 'off', poolMax: 2, connectTimeoutMs: 3001 },
      markers: { retentionMs: 7_200_000 },
      records: { retentionMs: 6, answerMarginMs: 2000 },
      redis: {
        url: 'redis://host',
        mode: 'cluster',
        namespace: 'shop-prod',
        epoch: 2,
        commandTimeoutMs: 101,
        connectBudgetMs: 251,
        coolDownMs: 1001,
      },
    });
  });

  test('the purge reads its own', () => {
    const settings = loadPurge({
      PURGE_DATABASE_URL: 'postgres://purge@host/db',
      BACKSTOP_PURGE_RETENTION_MS: '7200001',
      BACKSTOP_RECORD_RETENTION_MS: '6',
      BACKSTOP_PURGE_MARGIN_MS: '300001',
      BACKSTOP_PURGE_BATCH_ROWS_MAX: '3',
      BACKSTOP_PURGE_LOOPS: '2',
      BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS: '3001',
    });
    expect(settings).toEqual({
      url: 'postgres://purge@host/db',
      tokenRegion: undefined,
      connectTimeoutMs: 3001,
      markerRetentionMs: 7_200_001,
      recordRetentionMs: 6,
      marginMs: 300_001,
      batchRowsMax: 3,
      loops: 2,
    });
  });

  test('a service on DynamoDB reads its own', () => {
    const { dynamodb } = loadDynamo({
      DYNAMODB_ENDPOINT: 'http://127.0.0.1:8000',
      DYNAMODB_TABLE: 'mine',
      AWS_REGION: 'eu-central-1',
      BACKSTOP_DYNAMO_RETENTION_MS: '7',
      BACKSTOP_DYNAMO_TTL_SLACK_MS: '3600001',
      BACKSTOP_DYNAMO_CONNECT_TIMEOUT_MS: '8',
      BACKSTOP_DYNAMO_REQUEST_TIMEOUT_MS: '9',
    });
    expect(dynamodb).toEqual({
      endpoint: 'http://127.0.0.1:8000',
      awsRegion: 'eu-central-1',
      table: 'mine',
      retentionMs: 7,
      ttlSlackMs: 3_600_001,
      connectTimeoutMs: 8,
      requestTimeoutMs: 9,
    });
  });
});

test('the purge keeps as long as the functions unless told to keep longer', () => {
  expect(loadPurge({ BACKSTOP_RETENTION_MS: '7200000' }).markerRetentionMs).toBe(7_200_000);
});

describe('a refusal names the variable, what is wrong with it and what to set', () => {
  test('a missing database is refused', () => {
    for (const value of [undefined, '']) {
      const message = refusal({ DATABASE_URL: value });
      expect(message).toMatch(/^DATABASE_URL is not set/);
      expect(message).toContain('postgres://user@host:port/database');
    }
  });

  const numbers = {
    BACKSTOP_POOL_MAX: '1',
    BACKSTOP_RETENTION_MS: '3600000',
    BACKSTOP_PURGE_RETENTION_MS: '3600000',
    BACKSTOP_PURGE_MARGIN_MS: '300000',
    BACKSTOP_PURGE_BATCH_ROWS_MAX: '50000',
    BACKSTOP_PURGE_LOOPS: '1',
    BACKSTOP_ANSWER_MARGIN_MS: '1000',
    BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '100',
    BACKSTOP_REDIS_CONNECT_BUDGET_MS: '250',
    BACKSTOP_REDIS_COOL_DOWN_MS: '1000',
    BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS: '3000',
    BACKSTOP_BODY_BYTES_MAX: '262144',
    BACKSTOP_STORED_BODY_BYTES_MAX: '262144',
    BACKSTOP_RECORD_RETENTION_MS: '172800000',
    BACKSTOP_LEASE_MS: '30000',
    BACKSTOP_DYNAMO_RETENTION_MS: '172800000',
    BACKSTOP_DYNAMO_TTL_SLACK_MS: '3600000',
    BACKSTOP_DYNAMO_CONNECT_TIMEOUT_MS: '1000',
    BACKSTOP_DYNAMO_REQUEST_TIMEOUT_MS: '2000',
  };
  describe.each(Object.entries(numbers))('the number %s', (name, usual) => {
    test.each(['abc', '0', '-1', '1.5', ' ', '1e400', '5s', '9007199254740993'])(
      '%j is refused',
      (value) => {
        const message = refusal({ [name]: value });
        expect(message).toContain(`${name} is "${value}"`);
        expect(message).toContain('whole number above 0');
        expect(message).toContain(usual);
        expect(message.split(name)).toHaveLength(2); // Once, not once for each broken rule.
      },
    );
  });

  test.each([
    ['BACKSTOP_PIPELINE', 'yes', ['"on"', '"off"']],
    ['BACKSTOP_CACHE_MODE', 'both', ['"first"', '"parallel"']],
    ['BACKSTOP_PIPELINE', 'ON', ['"on"', '"off"']],
    ['BACKSTOP_STAGE', 'prod stage', ['"prod"', '1 to 64']],
    ['BACKSTOP_LEASE_RENEWAL', 'yes', ['"on"', '"off"']],
    ['BACKSTOP_KEY_MODE', 'off', ['"required"', '"optional"']],
    ['BACKSTOP_REDIS_MODE', 'sentinel', ['"single"', '"cluster"']],
  ])('a choice is refused where it is none: %s=%s', (name, value, choices) => {
    const message = refusal({ [name]: value });
    expect(message).toContain(`${name} is "${value}"`);
    for (const choice of choices) expect(message).toContain(choice);
  });

  test.each(['BACKSTOP_DATABASE_AUTH', 'BACKSTOP_REDIS_AUTH'])(
    '%s, where somebody may put a password, is refused without its value (C119)',
    (name) => {
      const message = refusal({ [name]: 'hunter3' });
      expect(message).toContain(`${name} cannot be used: set it to "password" or "iam"`);
      expect(message).not.toContain('hunter3');
    },
  );

  test('a DynamoDB endpoint that is no URL is refused', () => {
    const message = refusal({ DYNAMODB_ENDPOINT: 'localhost' });
    expect(message).toMatch(/^DYNAMODB_ENDPOINT is no URL.*http:\/\/127\.0\.0\.1:8000/);
  });

  test.each([
    ['BACKSTOP_RETENTION', 'BACKSTOP_RETENTION_MS'],
    ['BACKSTOP_KEYMODE', 'BACKSTOP_KEY_MODE'],
    ['BACKSTOP_KEY_MODES', 'BACKSTOP_KEY_MODE'],
    ['BACKSTOP_NAME_SPACE', 'BACKSTOP_NAMESPACE'],
    ['BACKSTOP_KEY_MODE_', 'BACKSTOP_KEY_MODE'],
    ['BACKSTOP_pool_max', 'BACKSTOP_POOL_MAX'],
    ['BACKSTOP_KEY_MODE_spend-coins', 'BACKSTOP_KEY_MODE_SPEND_COINS'],
    ['BACKSTOP_LEASE_MS_CREATE__PURCHASE', 'BACKSTOP_LEASE_MS_CREATE_PURCHASE'],
    ['BACKSTOP_LEASE_RENEWAL_CREATE_PURCHASE', 'BACKSTOP_LEASE_RENEWAL'],
  ])(
    '%s, which nobody reads, is refused with the nearest that is read (library A3)',
    (name, near) => {
      const message = refusal({ [name]: 'hunter2', BACKSTOP_POOL_MAX: '2' });
      expect(message).toContain(`${name} (did you mean ${near}?)`);
      expect(message).not.toContain('hunter2');
    },
  );

  test('settings of one function, other names and empty ones are let through (library A3)', () => {
    load({
      BACKSTOP_KEY_MODE_SPEND_COINS: 'optional',
      BACKSTOP_LEASE_MS_CREATE_PURCHASE: '40000',
      BACKSTOP_RETENTION: '',
      MY_BACKSTOP_RETENTION: '1',
    });
  });

  test('several wrong settings are all named', () => {
    const message = refusal({ BACKSTOP_POOL_MAX: 'x', BACKSTOP_PIPELINE: 'y' });
    expect(message).toMatch(/^BACKSTOP_POOL_MAX is "x".*\nBACKSTOP_PIPELINE is "y".*$/);
  });

  test('the password in a URL is not repeated', () => {
    expect(refusal({ BACKSTOP_POOL_MAX: 'x' })).not.toContain('hunter2');
  });
});

describe('what would break the promise', () => {
  test('a purge that deletes markers which still catch replays is refused', () => {
    const message = refusal({ BACKSTOP_PURGE_RETENTION_MS: '3599999' });
    expect(message).toMatch(/^BACKSTOP_PURGE_RETENTION_MS is 3599999, less than the 3600000/);
    expect(message).toContain('still catch replays');
    expect(message).toContain('Set it to the longest retention');
    expect(loadPurge({ BACKSTOP_PURGE_RETENTION_MS: '3600000' }).markerRetentionMs).toBe(3_600_000);
  });

  test('a time-to-live that lets DynamoDB delete a marker within its retention is refused', () => {
    const message = refusal({ BACKSTOP_DYNAMO_TTL_SLACK_MS: '627999' });
    expect(message).toMatch(/^BACKSTOP_DYNAMO_TTL_SLACK_MS is 627999, less than 628000/);
    expect(message).toContain('Set it to 3600000');
    const { dynamodb } = loadDynamo({ BACKSTOP_DYNAMO_TTL_SLACK_MS: '628000' });
    expect(dynamodb.ttlSlackMs).toBe(628_000);
  });

  test('a purge margin within the longest request is refused', () => {
    const message = refusal({ BACKSTOP_PURGE_MARGIN_MS: '28000' });
    expect(message).toMatch(/^BACKSTOP_PURGE_MARGIN_MS is 28000.*\(28000\).*still runs/);
    expect(message).toContain('Set it to 300000');
    expect(loadPurge({ BACKSTOP_PURGE_MARGIN_MS: '28001' }).marginMs).toBe(28_001);
  });

  test.each(['799', '28000'])('an answer margin of %s ms is refused', (value) => {
    const message = refusal({ BACKSTOP_ANSWER_MARGIN_MS: value });
    expect(message).toContain(`BACKSTOP_ANSWER_MARGIN_MS is ${value}`);
    expect(message).toContain('lost COMMIT');
    expect(message).toContain('Set it to 1000');
  });

  test('an answer margin at its bounds is accepted', () => {
    const margin = (value: string) =>
      load({ BACKSTOP_ANSWER_MARGIN_MS: value }).requests.answerMarginMs;
    expect(margin('800')).toBe(800);
    expect(margin('27999')).toBe(27_999);
  });

  test('Redis commands that may outlast the request are refused (core 21)', () => {
    const message = refusal({ BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '1000' });
    expect(message).toMatch(/^BACKSTOP_REDIS_COMMAND_TIMEOUT_MS is 1000/);
    expect(message).toContain('lost COMMIT (600) and two slow commands');
    expect(message).toMatch(/Set it to 200 or less. Or set BACKSTOP_ANSWER_MARGIN_MS to 2600\.$/);
    expect(refusal({ BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '201' })).toContain('Set it to 200');
    expect(() => load({ BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '200' })).not.toThrow();
    const patient = {
      BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '1000',
      BACKSTOP_ANSWER_MARGIN_MS: '2600',
    };
    expect(load(patient).requests.answerMarginMs).toBe(2600);
    const never = refusal({ BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '20000' });
    expect(never).toMatch(/Set it to 200 or less\.$/);
  });
});

describe('the key mode', () => {
  const keyModes = (environment: Environment) => {
    const { keyMode } = load(environment).requests;
    return (functionName: string) => keyMode(functionName).value;
  };

  test('the key mode of a function counts, else that for all', () => {
    const keyMode = keyModes({
      BACKSTOP_KEY_MODE: 'optional',
      BACKSTOP_KEY_MODE_SPEND_COINS: 'required',
      BACKSTOP_KEY_MODE_TRANSFER_COINS: '',
    });
    expect(keyMode('spend-coins')).toBe('required');
    expect(keyMode('transfer-coins')).toBe('optional');
    expect(keyMode('other')).toBe('optional');
  });

  test('a key mode that does not exist is refused', () => {
    const keyMode = keyModes({ BACKSTOP_KEY_MODE_SPEND_COINS: 'of' });
    expect(() => keyMode('spend-coins')).toThrow(
      new ConfigError(
        'BACKSTOP_KEY_MODE_SPEND_COINS is "of": set it to "required" or "optional", or leave it out',
      ),
    );
  });
});

describe('the lease of a record', () => {
  const leases = (environment: Environment) => {
    const { records } = load(environment);
    return (functionName: string) => leaseOf(records, functionName);
  };
  const LEASE = 'BACKSTOP_LEASE_MS_CREATE_PURCHASE';

  test('the lease of a function counts, else that for all', () => {
    const leaseMs = leases({ BACKSTOP_LEASE_MS: '40000', [LEASE]: '50000' });
    expect(leaseMs('create-purchase')).toBe(50_000);
    expect(leaseMs('other')).toBe(40_000);
  });

  test.each([LEASE, 'BACKSTOP_LEASE_MS'])(
    'a lease shorter than the longest request and its margin is refused by %s (C11)',
    (name) => {
      const leaseMs = leases({ [name]: '28999' });
      expect(() => leaseMs('create-purchase')).toThrow(
        new RegExp(`^${name} is 28999: .*still runs.*Set it to 29000`),
      );
      expect(leases({ [name]: '29000' })('create-purchase')).toBe(29_000);
    },
  );

  test('a lease may be shorter where it is renewed (C11)', () => {
    const leaseMs = leases({ [LEASE]: '5000', BACKSTOP_LEASE_RENEWAL: 'on' });
    expect(leaseMs('create-purchase')).toBe(5000);
  });

  test.each(['abc', '0', '-1', '1.5', ' ', '1e400'])('a lease of %j is refused', (value) => {
    const leaseMs = leases({ [LEASE]: value, BACKSTOP_LEASE_RENEWAL: 'on' });
    expect(() => leaseMs('create-purchase')).toThrow(ConfigError);
  });
});

describe('the aliases of issuers', () => {
  const aliases = (text: string) => load({ BACKSTOP_ISSUER_ALIASES: text }).requests.issuerAliases;

  test('the aliases are pairs, from issuer to alias', () => {
    expect(aliases('a=https://one.example/, b_2-x=https://two.example/?x=1')).toEqual({
      'https://one.example/': 'a',
      'https://two.example/?x=1': 'b_2-x',
    });
  });

  test.each([
    ['no issuer', 'a'],
    ['an empty issuer', 'a='],
    ['an empty alias', '=https://one.example/'],
    ['an alias that could end the principal’s first part', 'a|b=https://one.example/'],
    ['a pair that is missing', 'a=https://one.example/,'],
    // Two issuers of one alias: their subjects would be the same principals.
    ['one alias for two issuers', 'a=https://one.example/,a=https://two.example/'],
    // One issuer of two aliases: whose are its principals?
    ['two aliases for one issuer', 'a=https://one.example/,b=https://one.example/'],
  ])('%s is refused', (_, text) => {
    const message = refusal({ BACKSTOP_ISSUER_ALIASES: text });
    expect(message).toContain('BACKSTOP_ISSUER_ALIASES');
    expect(message).toContain('alias=issuer');
  });
});
