/**
 * What goes over the wire, since RDS Proxy stands there: some start-up parameters it
 * refuses, and some statements pin a connection to one client for good.
 */
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { spendCoins } from '../../../functions/players/spend-coins.ts';
import { transferCoins } from '../../../functions/players/transfer-coins.ts';
import { createPurchase } from '../../../functions/purchases/create-purchase.ts';
import { createTestDatabase, seedPlayer, type TestDatabase } from '../../support/database.ts';
import { startFaultProxy } from '../../support/fault-proxy.ts';
import { newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
  for (const player of ['wire-a', 'wire-b']) await seedPlayer(db, player, 1_000_000);
});
afterAll(() => db.drop());

interface Said {
  readonly startup: string[];
  readonly statements: { readonly name: string; readonly text: string }[];
}

/** The messages of one client, in order. */
function read(bytes: Buffer): Said {
  const startupLength = bytes.readInt32BE(0);
  const startup = bytes
    .toString('utf8', 8, startupLength)
    .split('\0')
    .filter((part) => part !== '');
  const statements: { name: string; text: string }[] = [];
  for (let at = startupLength; at < bytes.length; ) {
    const type = String.fromCharCode(bytes.readUInt8(at));
    const length = bytes.readInt32BE(at + 1);
    const body = bytes.toString('utf8', at + 5, at + 1 + length);
    if (type === 'Q') statements.push({ name: '', text: body.replace(/\0$/, '') });
    if (type === 'P') {
      const [name = '', text = ''] = body.split('\0');
      statements.push({ name, text });
    }
    at += 1 + length;
  }
  return { startup, statements };
}

/** 100 mixed requests over one connection, and all that was said on it. */
async function talk(pipeline: string): Promise<Said> {
  const proxy = await startFaultProxy(db.apiUrl);
  onTestFinished(() => proxy.close());
  const chunks: Buffer[] = [];
  proxy.count((chunk) => {
    chunks.push(chunk);
    return false;
  });
  const service = testService(
    { apiUrl: proxy.url },
    { BACKSTOP_PIPELINE: pipeline, BACKSTOP_POOL_MAX: '1' },
  );
  const spend = service.mutation(spendCoins);
  const transfer = service.mutation(transferCoins);
  const purchase = service.recordMutation(createPurchase);
  for (let n = 0; n < 20; n++) {
    const key = newKey();
    const principal = 'wire-a';
    await send(spend, { principal, key, body: { amount: 1 } });
    await send(spend, { principal, key, body: { amount: 1 } });
    await send(spend, { principal, key: newKey(), body: { amount: 9_000_000 } });
    await send(transfer, {
      principal,
      key: newKey(),
      path: '/transfers',
      body: { to: 'wire-b', amount: 1 },
    });
    await send(purchase, {
      principal,
      key: newKey(),
      path: '/purchases',
      body: { sku: 'potion', quantity: 1 },
    });
  }
  expect(proxy.traffic.connections).toBe(1);
  return read(Buffer.concat(chunks));
}

describe.each(['on', 'off'])('pipelining %s', (pipeline) => {
  test('C56 C57 C58 nothing that the proxy refuses, and nothing that pins', async () => {
    const { startup, statements } = await talk(pipeline);
    const parameters = startup.filter((_, n) => n % 2 === 0);
    expect(parameters.filter((name) => !ACCEPTED.has(name))).toEqual([]);
    expect(statements.length).toBeGreaterThan(400);
    expect(statements.filter(({ name }) => name !== '')).toEqual([]);
    expect(statements.filter(({ text }) => PINNING.test(text))).toEqual([]);
    expect(statements.filter(({ text }) => text.length > 16_384)).toEqual([]);
  });
});

const ACCEPTED = new Set([
  'user',
  'database',
  'application_name',
  'client_encoding',
  'DateStyle',
  'TimeZone',
  'extra_float_digits',
  'search_path',
]);

const PINNING =
  /^\s*(?:SET|RESET|PREPARE|DEALLOCATE|DECLARE|LISTEN|UNLISTEN|LOCK|CREATE|DISCARD)\b|set_config|nextval|\bTEMP(?:ORARY)?\b|pg_(?:try_)?advisory_lock/i;

test('the rule knows what pins', () => {
  for (const text of [
    'SET lock_timeout = 1',
    `SELECT set_config('a', 'b', true)`,
    'SELECT pg_advisory_lock(1)',
    'CREATE TEMP TABLE a ()',
  ]) {
    expect(text).toMatch(PINNING);
  }
  expect('SELECT pg_advisory_xact_lock(1)').not.toMatch(PINNING);
});
