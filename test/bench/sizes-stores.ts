/** What one request leaves in Redis and in DynamoDB, and what it says in the log. */
import { fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { startRedis } from '../../infra/local/redis.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import type { Mutation } from '../../shared/core/contract.ts';
import { markerItem } from '../../shared/dynamodb/marker-item.ts';
import type { Item } from '../../shared/dynamodb/table.ts';
import { redisClaimCache } from '../../shared/redis/claim-cache.ts';
import { createRedis } from '../../shared/redis/client.ts';
import type { RunAnswer, RunRequest } from './environment.ts';
import { type BenchPostgres, rounded } from './postgres.ts';
import type { BenchRun } from './run.ts';

const HOUR_MS = 3_600_000;

export async function measureStores(
  postgres: BenchPostgres,
  run: BenchRun,
): Promise<Record<string, number>> {
  const folder = await createRunFolder();
  const redis = await startRedis({ runDir: folder.path });
  try {
    const log = { redisUrl: redis.url, logFile: join(folder.path, 'log') };
    const figures = {
      ...(await measureRedis(redis.url, run.isQuick ? 2_000 : 100_000)),
      ...measureDynamodb(),
      ...(await measureLog(postgres, { ...log, requests: run.isQuick ? 20 : 500 })),
    };
    run.progress(`stores: ${JSON.stringify(figures)}`);
    return figures;
  } finally {
    await redis.close();
    await folder.remove();
  }
}

function newMutation(): Mutation {
  return {
    principal: randomUUID(),
    key: randomUUID(),
    endpoint: 'POST /bench',
    fingerprint: `1:${'f'.repeat(43)}`,
    token: randomUUID(),
    deadlineMs: Date.now() + HOUR_MS,
  };
}

/** A body of so many bytes, with as many quotes as JSON has: escaped, they count twice. */
function responseOf(bodyBytes: number) {
  const member = '"member":"value",';
  const body = `{${member.repeat(Math.ceil(bodyBytes / member.length))}`.slice(0, bodyBytes);
  const headers = { 'content-type': 'application/json', etag: '"12"' };
  return { statusCode: 200, headers, body, isBase64Encoded: false };
}

async function measureRedis(url: string, count: number): Promise<Record<string, number>> {
  const redis = createRedis({ url, commandTimeoutMs: 10_000, onError: () => {} });
  const cache = redisClaimCache({
    redis,
    namespace: 'bench',
    connectBudgetMs: 10_000,
    coolDownMs: 1000,
    onFailure: (step, error) => {
      throw new Error(`${step} failed`, { cause: error });
    },
  });
  const used = async () => Number(/used_memory:(\d+)/.exec(await redis.info('memory'))?.[1]);
  await cache.claim(newMutation());
  const before = await used();
  const mutations = Array.from({ length: count }, newMutation);
  const each = async (step: (mutation: Mutation) => Promise<unknown>) => {
    for (let from = 0; from < count; from += 500) {
      await Promise.all(mutations.slice(from, from + 500).map(step));
    }
    return rounded(((await used()) - before) / count, 0);
  };
  const publish = (bodyBytes: number) => async (mutation: Mutation) =>
    (await cache.claim(mutation)).publish(responseOf(bodyBytes), Date.now() + HOUR_MS);
  const figures = {
    redis_bytes_pending: await each((mutation) => cache.claim(mutation)),
    redis_bytes_completed_300: await each(publish(300)),
    redis_bytes_completed_4k: await each(publish(4096)),
  };
  redis.disconnect();
  return figures;
}

/** The marker as it is put, with the response in it. */
function measureDynamodb(): Record<string, number> {
  const facts = {
    requestToken: randomUUID(),
    retainedUntilSeconds: 1_800_000_000,
    ttlSlackSeconds: 3600,
  };
  const bytesWith = (bodyBytes: number) =>
    bytesOf(markerItem(newMutation(), { ...facts, kept: responseOf(bodyBytes) }));
  return { dynamo_bytes_300: bytesWith(300), dynamo_bytes_4k: bytesWith(4096) };
}

/** By DynamoDB's rules: UTF-8 with the names; a number, a byte for two digits and one more. */
function bytesOf(item: Item): number {
  return Object.entries(item).reduce((bytes, [name, { S, N }]) => {
    const value = S === undefined ? Math.ceil((N?.length ?? 0) / 2) + 1 : Buffer.byteLength(S);
    return bytes + Buffer.byteLength(name) + value;
  }, 0);
}

/** The function's own output, as CloudWatch would take it in, and its processor time. */
async function measureLog(
  postgres: BenchPostgres,
  { redisUrl, logFile, requests }: { redisUrl: string; logFile: string; requests: number },
): Promise<Record<string, number>> {
  const admin = await postgres.connect();
  await admin.query(
    `INSERT INTO players (user_id, coins) VALUES ('log', 1000000) ON CONFLICT DO NOTHING`,
  );
  const url = new URL(postgres.url);
  url.username = 'backstop_api';
  const file = new URL('../../functions/players/spend-coins.ts', import.meta.url).href;
  const log = await open(logFile, 'w');
  const child = fork(new URL('environment.ts', import.meta.url), [file], {
    stdio: ['ignore', log.fd, 'inherit', 'ipc'],
    execArgv: ['--disable-warning=ExperimentalWarning'],
    env: {
      NODE_ENV: 'production',
      DATABASE_URL: url.href,
      REDIS_URL: redisUrl,
      BACKSTOP_NAMESPACE: 'bench',
    },
  });
  const hasEnded = once(child, 'exit');
  const ask = async (request: RunRequest) => {
    child.send(request);
    const [answer] = (await once(child, 'message')) as [RunAnswer];
    if (answer.error !== undefined) throw new Error(answer.error);
    return answer;
  };
  await once(child, 'message');
  await ask({ requests, principal: 'log' }); // Warm.
  const { cpuMs } = await ask({ requests, principal: 'log' });
  child.disconnect();
  await hasEnded;
  const { size } = await log.stat();
  await log.close();
  return {
    log_bytes: rounded(size / (2 * requests), 0),
    lambda_cpu_ms: rounded(cpuMs / requests),
  };
}
