import { inject } from 'vitest';
import { type DynamoTx, dynamoStore, dynamoWork, type Write } from '../../shared/dynamodb/index.ts';
import { redisResponseCache } from '../../shared/redis/index.ts';
import { createTestTable, dynamodbUrl, tableAt } from '../support/dynamodb.ts';
import { startHttpFaultProxy } from '../support/http-fault-proxy.ts';
import { TEST_NAMESPACE } from '../support/redis.ts';
import { eventually } from '../support/waiting.ts';
import type { OpenStore, RedisMode, StoreHarness } from './harness.ts';
import { openHarnessRedis } from './redis.ts';
import { conformanceSuite } from './suite.ts';

const url = await dynamodbUrl();
if (url !== undefined) {
  for (const redis of ['on', 'off', 'dies'] as const) {
    if (redis !== 'off' && inject('redisUrl') === '') continue;
    conformanceSuite(dynamoHarness(url), redis);
    if (redis === 'on') conformanceSuite(dynamoHarness(url), redis, 'parallel');
  }
}

function dynamoHarness(endpoint: string): StoreHarness<DynamoTx> {
  return {
    name: 'dynamo store',
    traits: {
      replaysWithoutRedis: true,
      identity: 'key',
      duplicateInFlight: 'races',
    },
    open: (redisMode) => openDynamoStore(endpoint, redisMode),
  };
}

async function openDynamoStore(
  endpoint: string,
  redisMode: RedisMode,
): Promise<OpenStore<DynamoTx>> {
  const test = await createTestTable(endpoint);
  // In between, so that the store can be taken away from the product alone.
  const proxy = await startHttpFaultProxy(endpoint);
  const table = tableAt(proxy.url, test.name);
  const redis = await openHarnessRedis(redisMode, (client) =>
    redisResponseCache({
      redis: client,
      namespace: TEST_NAMESPACE,
      store: 'dynamo',
      isPerEndpoint: false,
      connectBudgetMs: 20_000,
      coolDownMs: 50,
      onFailure: () => {},
    }),
  );
  let running = 0;
  return {
    store: dynamoStore({ table, retentionMs: 172_800_000, ttlSlackMs: 3_600_000 }),
    cache: redis.cache,
    killRedis: redis.killRedis,
    work: (principal, respond) =>
      dynamoWork(async () => {
        running++;
        try {
          return { writes: [oneMore(test.name, principal)], response: await respond() };
        } finally {
          running--;
        }
      }),
    effects: async (principal) => Number((await test.item(principal))?.['effects']?.N ?? 0),
    claims: async (principal) =>
      (await test.items(`idem:${principal.length}:${principal}:`)).length,
    duplicateArrived: () => eventually(async () => running >= 2, 'two that run side by side'),
    breakStore: () => proxy.refuse(),
    mendStore: async () => {
      await proxy.pass();
      await redis.mend();
    },
    close: async () => {
      table.close();
      await proxy.close();
      await redis.close();
      await test.drop();
    },
  };
}

/** One effect, under no condition: nothing but the marker keeps it from being made twice. */
function oneMore(TableName: string, principal: string): Write {
  return {
    Update: {
      TableName,
      Key: { pk: { S: principal } },
      UpdateExpression: 'ADD effects :one',
      ExpressionAttributeValues: { ':one': { N: '1' } },
    },
  };
}
