import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { getPlayer } from '../../functions/players/get-player.ts';
import { spendCoins } from '../../functions/players/spend-coins.ts';
import { transferCoins } from '../../functions/players/transfer-coins.ts';
import {
  createTestDatabase,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../support/database.ts';
import { answerOf, httpEvent, lambdaContext, newKey, send } from '../support/requests.ts';
import { testService } from '../support/service.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());

async function newPlayer(coins = 1000, version = '1'): Promise<string> {
  const principal = `p-${newKey()}`;
  await seedPlayer(db, principal, coins);
  await db.sql('UPDATE players SET data_version = $2 WHERE user_id = $1', [principal, version]);
  return principal;
}

test.each([
  ['9', '10'],
  ['9007199254740993', '9007199254740994'],
  ['9223372036854775806', '9223372036854775807'],
])('version %s becomes %s in the body, the ETag and If-Match (C64)', async (version, next) => {
  const principal = await newPlayer(1000, version);
  const service = testService(db);
  const spend = service.mutation(spendCoins);
  const get = service.query(getPlayer);
  const read = async () =>
    answerOf(
      await get(httpEvent({ method: 'GET', path: '/players/me', principal }), lambdaContext()),
    );
  const before = await read();
  expect([before.json['dataVersion'], before.headers['etag']]).toEqual([version, `"${version}"`]);
  const sent = {
    principal,
    key: newKey(),
    body: { amount: 1 },
    headers: { 'if-match': before.headers['etag'] as string },
  };
  const spent = await send(spend, sent);
  expect([spent.status, spent.json['dataVersion'], spent.headers['etag']]).toEqual([
    200,
    next,
    `"${next}"`,
  ]);
  const stale = await send(spend, { ...sent, key: newKey() });
  expect([stale.status, stale.code]).toEqual([412, 'VERSION_MISMATCH']);
  expect((await read()).json).toEqual({ userId: principal, coins: 999, dataVersion: next });
});

test('a function that was renamed replays what it answered under its old name (C31)', async () => {
  const principal = await newPlayer();
  const service = testService(db, { REDIS_URL: inject('redisUrl') });
  const sent = { principal, key: newKey(), body: { amount: 1 } };
  const first = await send(service.mutation(spendCoins), sent);
  const again = await send(service.mutation({ ...spendCoins, name: 'renamed' }), sent);
  expect([again.text, again.headers['idempotency-replayed']]).toEqual([first.text, 'true']);
  expect((await playerOf(db, principal)).coins).toBe(999);
});

test('a transfer moves coins between two players, and answers what the sender has left', async () => {
  const [from, to] = [await newPlayer(100), await newPlayer(5)];
  const transfer = testService(db).mutation(transferCoins);
  const sent = { principal: from, key: newKey(), path: '/transfers', body: { to, amount: 30 } };
  const answer = await send(transfer, sent);
  expect(answer.json).toEqual({
    from: { userId: from, coins: 70, dataVersion: '2' },
    to,
    amount: 30,
  });
  expect([await playerOf(db, from), await playerOf(db, to)]).toEqual([
    { coins: 70, version: 2 },
    { coins: 35, version: 2 },
  ]);
  const short = await send(transfer, { ...sent, key: newKey(), body: { to, amount: 71 } });
  expect([short.status, short.code]).toEqual([402, 'INSUFFICIENT_COINS']);
  const nobody = await send(transfer, {
    ...sent,
    key: newKey(),
    body: { to: 'nobody', amount: 1 },
  });
  expect([nobody.status, nobody.code]).toEqual([404, 'NOT_FOUND']);
});

test('a receiver that would hold more than JSON can count is not paid, and nothing is taken', async () => {
  const [from, to] = [await newPlayer(100), await newPlayer(Number.MAX_SAFE_INTEGER)];
  const transfer = testService(db).mutation(transferCoins);
  const answer = await send(transfer, {
    principal: from,
    key: newKey(),
    path: '/transfers',
    body: { to, amount: 1 },
  });
  expect([answer.status, answer.code]).toEqual([400, 'BODY_INVALID']);
  expect((await playerOf(db, from)).coins).toBe(100);
});

test('a process that has closed its service ends by itself (C85)', async () => {
  const script = `
    import { createService } from './shared/service/index.ts';
    const service = createService();
    await service.database.pool.query('SELECT 1');
    await service.dependencies.redis().catch(() => {});
    await service.close();
    console.log('closed');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    cwd: `${import.meta.dirname}/../..`,
    env: {
      ...process.env,
      DATABASE_URL: db.apiUrl,
      REDIS_URL: inject('redisUrl'),
      BACKSTOP_NAMESPACE: 'test',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const output: Buffer[] = [];
  child.stdout.on('data', (chunk) => output.push(chunk));
  const [code] = await once(child, 'exit');
  expect([code, Buffer.concat(output).toString().trim()]).toEqual([0, 'closed']);
});
