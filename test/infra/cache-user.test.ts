/** The cache user's rights, on a real server: enough for the product, and for nothing else. */
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import type { Mutation } from '../../shared/core/contract.ts';
import { redisClaimCache } from '../../shared/redis/claim-cache.ts';
import { createRedis } from '../../shared/redis/client.ts';
import { packagedTemplate } from './support/package-service.ts';
import { ofType, propertiesOf } from './support/template.ts';

beforeAll(() => packagedTemplate('own'));

const needsRedis = test.skipIf(inject('redisUrl') === '');

interface User {
  readonly AccessString: string;
  readonly AuthenticationMode: unknown;
}

/** A user with just these rights, for this test; ElastiCache's IAM token is a password here. */
async function login(accessString: string): Promise<{ url: string; admin: Redis; name: string }> {
  const admin = new Redis(inject('redisUrl'));
  const name = `test-${randomUUID()}`;
  await admin.call('ACL', 'SETUSER', name, 'reset', '>secret', ...accessString.split(/\s+/));
  onTestFinished(async () => {
    await admin.call('ACL', 'DELUSER', name);
    admin.disconnect();
  });
  const url = new URL(inject('redisUrl'));
  url.username = name;
  url.password = 'secret';
  return { url: url.href, admin, name };
}

async function apiUser(): Promise<User> {
  return propertiesOf<User>(await packagedTemplate('own'), 'CacheUser');
}

/** What the functions are told to put in front of their keys. */
async function deployedNamespace(): Promise<string> {
  const { Environment } = propertiesOf<{ Environment: { Variables: Record<string, string> } }>(
    await packagedTemplate('own'),
    'SpendCoinsLambdaFunction',
  );
  return Environment.Variables['BACKSTOP_NAMESPACE'] ?? '';
}

needsRedis('the deployed user may claim, publish, ask again and release', async () => {
  const { AccessString, AuthenticationMode } = await apiUser();
  expect(AuthenticationMode).toEqual({ Type: 'iam' });
  const { url } = await login(AccessString);
  const errors: unknown[] = [];
  const redis = createRedis({
    url,
    commandTimeoutMs: 20_000,
    onError: (error) => errors.push(error),
  });
  onTestFinished(() => redis.disconnect());
  const cache = redisClaimCache({
    redis,
    namespace: await deployedNamespace(),
    connectBudgetMs: 20_000,
    coolDownMs: 1000,
    onFailure: (_, error) => errors.push(error),
  });
  const mutation = (key: string): Mutation =>
    ({
      principal: randomUUID(),
      key,
      fingerprint: 'f',
      token: randomUUID(),
      deadlineMs: Date.now() + 10_000,
    }) as Mutation;
  const done = mutation('done');
  const claim = await cache.claim(done);
  expect(claim.lookup).toEqual({ kind: 'claimed' });
  await claim.publish('tombstone', Date.now() + 10_000);
  expect(await cache.claim({ ...done, token: randomUUID() })).toMatchObject({
    lookup: { kind: 'completed' },
  });
  const given = mutation('given up');
  await (await cache.claim(given)).release();
  expect(await cache.claim({ ...given, token: randomUUID() })).toMatchObject({
    lookup: { kind: 'claimed' },
  });
  expect(await redis.ping()).toBe('PONG');
  expect(errors).toEqual([]);
});

needsRedis('the deployed user may ask for all that a cluster client asks for', async () => {
  const { admin, name } = await login((await apiUser()).AccessString);
  const asks = [
    ['HELLO', '3'],
    ['CLIENT', 'SETNAME', 'x'],
    ['INFO'],
    ['CLUSTER', 'SLOTS'],
    ['CLUSTER', 'INFO'],
    ['READONLY'],
    ['ASKING'],
  ];
  for (const ask of asks) {
    expect([ask, await admin.call('ACL', 'DRYRUN', name, ...ask)]).toEqual([ask, 'OK']);
  }
});

needsRedis.each([
  ['a key of others', ['GET', 'session:1']],
  ['a key of another stage', ['GET', 'backstop-prod:1:idem:user:key']],
  ['a key of a longer name', ['GET', 'backstop-dev2:1:idem:user:key']],
  ['a key of before there were namespaces', ['GET', 'idem:user:key']],
  ['a key of others in a script', ['EVAL', 'return 1', '1', 'session:1']],
  ['all keys', ['KEYS', '*']],
  ['everything', ['FLUSHALL']],
  ['the settings', ['CONFIG', 'GET', '*']],
  ['the users', ['ACL', 'LIST']],
  ['other clients', ['CLIENT', 'KILL', 'TYPE', 'normal']],
  ['channels', ['PUBLISH', 'backstop-dev:1', 'x']],
])('%s is refused', async (_, command) => {
  const { admin, name } = await login((await apiUser()).AccessString);
  expect(await admin.call('ACL', 'DRYRUN', name, ...command)).toMatch(/no permissions/i);
});

test('every user of a Valkey group signs in with IAM or a password (deploy A1)', async () => {
  const template = await packagedTemplate('own');
  const groups = ofType(template, 'AWS::ElastiCache::UserGroup');
  const described = groups.map(([id]) =>
    propertiesOf<{ Engine: string; UserIds: { Ref: string }[] }>(template, id),
  );
  const ids = described.flatMap(({ UserIds }) => UserIds.map(({ Ref }) => Ref));
  expect(described.map(({ Engine }) => Engine)).toEqual(['valkey']);
  expect(ids).toContain('CacheUser');
  // AWS: "A user group configured for the VALKEY engine can only contain users who are using an
  // authentication mechanism (either password or IAM)".
  for (const id of ids) {
    const user = propertiesOf<Partial<User>>(template, id);
    expect([id, user.AuthenticationMode]).toEqual([
      id,
      { Type: expect.stringMatching(/^(iam|password)$/) },
    ]);
    expect(user).not.toHaveProperty('NoPasswordRequired');
  }
});
