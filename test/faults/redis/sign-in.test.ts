/** TLS to Redis, and users that sign in with tokens. */
import { once } from 'node:events';
import net from 'node:net';
import tls from 'node:tls';
import type { Cluster } from 'ioredis';
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
  vi,
} from 'vitest';
import { spendCoins } from '../../../functions/players/spend-coins.ts';
import { connected } from '../../../shared/redis/client.ts';
import { cacheToken } from '../../../shared/redis/elasticache-token.ts';
import { createRedis } from '../../../shared/redis/index.ts';
import { cacheRights } from '../../support/cache-rights.ts';
import { createTestDatabase, type TestDatabase } from '../../support/database.ts';
import { ENTRIES, TEST_NAMESPACE } from '../../support/redis.ts';
import { startTlsRedis, type TlsRedis } from '../../support/redis-tls.ts';
import { newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { eventually } from '../../support/waiting.ts';
import {
  effectsOn,
  kindOf,
  newRequest,
  PATIENT,
  type Spender,
  type SpendRequest,
} from './servers.ts';

let redis: TlsRedis;
let db: TestDatabase;
let request: SpendRequest;
const authorities = tls.getCACertificates('default');
beforeAll(async () => {
  [redis, db] = await Promise.all([startTlsRedis(), createTestDatabase()]);
});
afterAll(() => Promise.all([redis.close(), db.drop()]));
beforeEach(async () => {
  user = `backstop-api-${newKey()}`;
  request = await newRequest({ db });
  // As NODE_EXTRA_CA_CERTS does for a whole process.
  tls.setDefaultCACertificates([...authorities, redis.authority]);
});
afterEach(async () => {
  tls.setDefaultCACertificates(authorities);
  await redis.raw.call('ACL', 'DELUSER', user);
});

function spender(environment: Record<string, string>): Spender {
  const service = testService({ apiUrl: db.apiUrl }, { ...PATIENT, ...environment });
  const failures = vi.spyOn(service.meter, 'cacheFailure');
  return { service, spend: service.mutation(spendCoins), failures };
}

/** Each test's own: connections of the one before may still be trying. */
let user: string;

/** All that the deployed user may do, and all that it needs. */
const RIGHTS = cacheRights(TEST_NAMESPACE);

async function allowOnly(...tokens: readonly string[]): Promise<void> {
  const passwords = tokens.map((token) => `>${token}`);
  await redis.raw.call('ACL', 'SETUSER', user, 'reset', ...RIGHTS, ...passwords);
}

describe.each(['single', 'cluster'] as const)('a Redis of mode %s', (mode) => {
  const at = (host: string) => ({
    REDIS_URL: `rediss://${host}:${redis.port}`,
    BACKSTOP_REDIS_MODE: mode,
  });

  test('a server that its authority vouches for is accepted', async () => {
    const s = spender(at('localhost'));
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(kindOf(await send(s.spend, request))).toBe('200 replayed');
    expect(s.failures).not.toHaveBeenCalled();
  });

  test.each([
    ['of an authority that nobody trusts', 'localhost', false],
    ['of another name', '127.0.0.1', true],
  ])('a certificate %s is a miss, and is sent nothing', async (_which, host, isTrusted) => {
    if (!isTrusted) tls.setDefaultCACertificates(authorities);
    const s = spender(at(host));
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
    expect(await effectsOn({ db }, request)).toBe(1);
    expect(s.failures.mock.calls).toContainEqual(['claim']);
    expect(await redis.raw.keys(`${ENTRIES}${request.principal}:*`)).toEqual([]);
  });

  test('a server that sends one more alert to a client that refused it ends nothing', async () => {
    const unheard: unknown[] = [];
    const hear = (error: unknown) => unheard.push(error);
    process.on('uncaughtException', hear);
    onTestFinished(() => void process.off('uncaughtException', hear));
    const port = await addAlert(redis.port);
    const s = spender({ ...at('127.0.0.1'), REDIS_URL: `rediss://127.0.0.1:${port}` });
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(s.failures.mock.calls).toContainEqual(['claim']);
    expect(unheard).toEqual([]);
  });

  test('a service signs in with tokens of its own credentials', async () => {
    await allowOnly(...tokensOfTheNextMinute());
    await redis.raw.call('ACL', 'LOG', 'RESET');
    const s = spender({
      ...at('localhost'),
      REDIS_URL: `rediss://${user}@localhost:${redis.port}`,
      BACKSTOP_REDIS_AUTH: 'iam',
      BACKSTOP_REDIS_CACHE_NAME: 'Backstop-Test',
      AWS_REGION: 'eu-central-1',
      AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE',
      AWS_SECRET_ACCESS_KEY: 'secret',
      AWS_SESSION_TOKEN: 'session',
    });
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(kindOf(await send(s.spend, request))).toBe('200 replayed');
    const late = { ...(await newRequest({ db })), headers: { 'if-match': '"9"' } };
    expect(kindOf(await send(s.spend, late))).toBe('412 VERSION_MISMATCH');
    await s.service.dependencies['redis']?.();
    expect(s.failures).not.toHaveBeenCalled();
    const refused = (await redis.raw.call('ACL', 'LOG')) as unknown[][];
    expect(refused.filter((entry) => entry.includes(user))).toEqual([]);
  });

  test('each connection is given a new token', async () => {
    const { client, issued } = await open(mode, 3_600_000);
    for (const token of ['second', 'third']) {
      issued.token = token;
      await allowOnly(token);
      await redis.raw.call('CLIENT', 'KILL', 'user', user);
      await eventually(
        () =>
          client.get(`${ENTRIES}a`).then(
            () => true,
            () => false,
          ),
        'signed in again',
      );
    }
  });

  test('a connection that lives on signs in again before its time is up', async () => {
    const { client, issued } = await open(mode, 30);
    const accepted = async () => {
      const { calls, failed } = await signIns();
      return calls - failed;
    };
    issued.token = 'second';
    await allowOnly('second');
    const before = await accepted();
    await eventually(async () => (await accepted()) > before, 'signed in with the second');
    const connections = await redis.raw.call('CLIENT', 'LIST');
    await eventually(async () => (await accepted()) > before + 2, 'and again');
    expect(await client.get(`${ENTRIES}a`)).toBeNull();
    const idOf = (list: unknown) => /id=(\d+) .*user=backstop-api/.exec(String(list))?.[1];
    expect(idOf(connections)).toBeDefined();
    expect(idOf(await redis.raw.call('CLIENT', 'LIST'))).toBe(idOf(connections));
  });
});

test('the map of slots is asked for with a new token as well', async () => {
  const { client, issued } = await open('cluster', 3_600_000);
  issued.token = 'second';
  await allowOnly('second');
  const refusal = await new Promise((resolve) => (client as Cluster).refreshSlotsCache(resolve));
  expect(refusal).toBeUndefined();
});

/** The client alone, which signs in with whatever `token` is at the time. */
async function open(mode: 'single' | 'cluster', renewEveryMs: number) {
  const issued = { token: 'first' };
  await allowOnly('first');
  const client = createRedis({
    url: `rediss://${user}@localhost:${redis.port}`,
    mode,
    password: { issue: () => issued.token, renewEveryMs },
    commandTimeoutMs: 900,
    onError: () => {},
  });
  onTestFinished(() => client.disconnect());
  await connected(client, 5000);
  await client.ping();
  return { client, issued };
}

/** In front of the server: behind its whole handshake comes an alert, in the same breath. */
async function addAlert(toPort: number): Promise<number> {
  const alert = Buffer.from('15030300020232', 'hex');
  const listener = net.createServer((client) => {
    const server = net.connect(toPort, '127.0.0.1');
    for (const socket of [client, server]) socket.on('error', () => {});
    client.pipe(server);
    server.on('data', (chunk) => client.write(Buffer.concat([chunk, alert])));
    server.on('close', () => client.destroy());
    client.on('close', () => server.destroy());
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  onTestFinished(() => void listener.close());
  return (listener.address() as net.AddressInfo).port;
}

async function signIns(): Promise<{ readonly calls: number; readonly failed: number }> {
  const line = /cmdstat_auth:.*/.exec(await redis.raw.info('commandstats'))?.[0] ?? '';
  const count = (name: string) => Number(new RegExp(`\\b${name}=(\\d+)`).exec(line)?.[1] ?? 0);
  return { calls: count('calls'), failed: count('failed_calls') };
}

function tokensOfTheNextMinute(): string[] {
  return Array.from({ length: 60 }, (_, second) =>
    cacheToken({
      user,
      cacheName: 'Backstop-Test',
      region: 'eu-central-1',
      credentials: {
        accessKeyId: 'AKIDEXAMPLE',
        secretAccessKey: 'secret',
        sessionToken: 'session',
      },
      nowMs: Date.now() + second * 1000,
    }),
  );
}
