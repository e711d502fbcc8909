/** Whose answer it is: two deployments on one Redis, and one after its database was restored. */
import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { spendCoins } from '../../../functions/players/spend-coins.ts';
import type { Cache, Mutation } from '../../../shared/core/contract.ts';
import { createRedis, redisClaimCache, redisResponseCache } from '../../../shared/redis/index.ts';
import { createTestDatabase, seedPlayer } from '../../support/database.ts';
import { send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import {
  COINS,
  effectsOn,
  kindOf,
  newRequest,
  PATIENT,
  type SpendRequest,
  spender,
  useServers,
} from './servers.ts';

const servers = useServers(PATIENT);
let request: SpendRequest;
beforeEach(async () => {
  request = await newRequest(servers);
});

const epoch = (BACKSTOP_CACHE_EPOCH: string) => spender(servers, { BACKSTOP_CACHE_EPOCH });

test("two deployments on one Redis each run once, and neither gets the other's answer (C113)", async () => {
  const other = await createTestDatabase();
  onTestFinished(() => other.drop());
  await seedPlayer(other, request.principal, COINS - 100);
  const ours = spender(servers, { BACKSTOP_NAMESPACE: 'shop-dev' }).spend;
  const theirs = testService(other, {
    ...PATIENT,
    REDIS_URL: servers.redis.url,
    BACKSTOP_NAMESPACE: 'shop-prod',
  }).mutation(spendCoins);

  const fresh = [await send(ours, request), await send(theirs, request)];
  expect(fresh.map(kindOf)).toEqual(['200 fresh', '200 fresh']);
  const again = [await send(ours, request), await send(theirs, request)];
  expect(again.map(kindOf)).toEqual(['200 replayed', '200 replayed']);
  expect(again.map(({ json }) => json['coins'])).toEqual([COINS - 10, COINS - 110]);
  expect(await effectsOn(servers, request)).toBe(1);
});

test('a raised epoch after a restore replays nothing old (C113)', async () => {
  const before = epoch('1');
  expect(kindOf(await send(before.spend, request))).toBe('200 fresh');
  expect(kindOf(await send(before.spend, request))).toBe('200 replayed');

  // The database is as it was before the request.
  await servers.db.sql(
    'WITH m AS (DELETE FROM player_mutation_idempotency WHERE user_id = $1) UPDATE players SET coins = $2, data_version = 1 WHERE user_id = $1',
    [request.principal, COINS],
  );
  expect(kindOf(await send(before.spend, request))).toBe('200 replayed'); // Of what is not true any more.
  const after = epoch('2');
  expect(kindOf(await send(after.spend, request))).toBe('200 fresh');
  expect(kindOf(await send(after.spend, request))).toBe('200 replayed');
  expect(await effectsOn(servers, request)).toBe(1);
});

test('an entry of the time before namespaces is a miss (C113)', async () => {
  const s = spender(servers);
  expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
  const { key, value, leftMs } = await servers.redis.entry();
  await servers.redis.raw.set(`idem:${request.principal}:${request.key}`, value, 'PX', leftMs);
  await servers.redis.raw.del(key);
  expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
});

describe('each kind of cache by itself (C113)', () => {
  const common = { connectBudgetMs: 5000, coolDownMs: 1000, onFailure: () => {} };
  const kinds: [string, (namespace: string, epoch?: number) => Cache][] = [
    ['claims', (namespace, epoch = 1) => redisClaimCache({ ...common, redis, namespace, epoch })],
    ...(['record', 'dynamo'] as const).map((store): (typeof kinds)[number] => [
      store,
      (namespace, epoch = 1) =>
        redisResponseCache({
          ...common,
          redis,
          namespace,
          epoch,
          store,
          isPerEndpoint: store === 'record',
        }),
    ]),
  ];
  let redis: ReturnType<typeof createRedis>;
  beforeEach(() => {
    redis = createRedis({ url: servers.redis.url, commandTimeoutMs: 5000, onError: () => {} });
    return () => redis.disconnect();
  });

  test.each(kinds)('the cache of %s finds nothing of another namespace', async (_kind, make) => {
    const mutation = newMutation();
    const ours = make('shop');
    await (await ours.claim(mutation)).publish('tombstone', Date.now() + 60_000);
    const foreign: [string, number?][] = [['shop', 2], ['shop:1'], ['shop-2'], ['SHOP'], ['*']];
    for (const keyspace of foreign) {
      const { lookup } = await make(...keyspace).claim({ ...mutation, token: randomUUID() });
      expect([keyspace, lookup.kind]).not.toEqual([keyspace, 'completed']);
    }
    expect(await ours.claim({ ...mutation, token: randomUUID() })).toMatchObject({
      lookup: { kind: 'completed' },
    });
  });

  test.each(kinds)('the cache of %s is not made without a namespace', (_kind, make) => {
    expect(() => make('')).toThrow(/needs a namespace.*two deployments.*Pass namespace/s);
    expect(() => make(undefined as unknown as string)).toThrow(TypeError);
  });

  test.each(kinds)(
    'the cache of %s is not made with an epoch that is no whole number above 0',
    (_kind, make) => {
      for (const epoch of [0, 1.5, -1, Number.NaN, '2' as unknown as number]) {
        expect(() => make('shop', epoch)).toThrow(/epoch is .* whole number above 0/);
      }
    },
  );

  test('a namespace is one part of the key and of an ACL pattern, whatever is in it', async () => {
    const claim = await kinds[0]?.[1]('a:*{b}').claim(newMutation());
    await claim?.publish('tombstone', Date.now() + 60_000);
    expect((await servers.redis.entry()).key).toBe('a%3A%2A%7Bb%7D:1:idem:user:key');
  });
});

const newMutation = (): Mutation => ({
  principal: 'user',
  key: 'key',
  endpoint: 'POST /x',
  fingerprint: '1:f',
  token: randomUUID(),
  deadlineMs: Date.now() + 10_000,
});
