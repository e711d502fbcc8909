/**
 * What goes over the wire, since RDS Proxy stands there: some start-up parameters it
 * refuses, and some statements pin a connection to one client for good.
 */
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { getPlayer } from '../../../functions/players/get-player.ts';
import { spendCoins } from '../../../functions/players/spend-coins.ts';
import { transferCoins } from '../../../functions/players/transfer-coins.ts';
import { createPurchase } from '../../../functions/purchases/create-purchase.ts';
import { getPurchase } from '../../../functions/purchases/get-purchase.ts';
import { createPurge, type Handler } from '../../../shared/service/index.ts';
import { createTestDatabase, seedPlayer, type TestDatabase } from '../../support/database.ts';
import { type FaultProxy, startFaultProxy } from '../../support/fault-proxy.ts';
import { newKey, type RequestOptions, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
  for (const player of ['wire-a', 'wire-b']) await seedPlayer(db, player, 1_000_000);
});
afterAll(() => db.drop());

interface Said {
  /** The names of all start-up parameters, once for each connection. */
  readonly startups: string[][];
  readonly statements: { readonly name: string; readonly text: string }[];
}

/** The messages of one client after the other: a start-up alone begins without a letter. */
function read(bytes: Buffer): Said {
  const said: Said = { startups: [], statements: [] };
  for (let at = 0; at < bytes.length; ) {
    const type = bytes.readUInt8(at);
    const start = type === 0 ? at : at + 1;
    const end = start + bytes.readInt32BE(start);
    if (type === 0) {
      const parts = bytes.toString('utf8', start + 8, end).split('\0');
      said.startups.push(parts.filter((part, n) => n % 2 === 0 && part !== ''));
    }
    const body = bytes.toString('utf8', start + 4, end);
    const [first = '', second = ''] = body.split('\0');
    if (type === 'Q'.charCodeAt(0)) said.statements.push({ name: '', text: first });
    if (type === 'P'.charCodeAt(0)) said.statements.push({ name: first, text: second });
    at = end;
  }
  return said;
}

async function listen(url: string): Promise<{ proxy: FaultProxy; said(): Said }> {
  const proxy = await startFaultProxy(url);
  onTestFinished(() => proxy.close());
  const chunks: Buffer[] = [];
  proxy.count((chunk) => {
    chunks.push(chunk);
    return false;
  });
  return { proxy, said: () => read(Buffer.concat(chunks)) };
}

/** 100 mixed requests over one connection, and one whose COMMIT is asked about on another. */
async function talk(pipeline: string): Promise<Said> {
  const { proxy, said } = await listen(db.apiUrl);
  const service = testService(
    { apiUrl: proxy.url },
    { BACKSTOP_PIPELINE: pipeline, BACKSTOP_POOL_MAX: '1' },
  );
  const spend = service.mutation(spendCoins);
  const transfer = service.mutation(transferCoins);
  const purchase = service.recordMutation(createPurchase);
  const player = service.query(getPlayer);
  const receipt = service.query(getPurchase);
  const principal = 'wire-a';
  const kinds = new Set<string>();
  const sendRequest = async (handler: Handler, options: RequestOptions) => {
    const answer = await send(handler, { principal, key: newKey(), ...options });
    kinds.add(`${answer.status} ${answer.code ?? ''}`.trim());
    return answer;
  };
  for (let n = 0; n < 10; n++) {
    const key = newKey();
    await sendRequest(spend, { key, body: { amount: 1 } });
    await sendRequest(spend, { key, body: { amount: 1 } });
    await sendRequest(spend, { body: { amount: 9_000_000 } });
    await sendRequest(spend, { body: { amount: 1 }, headers: { 'if-match': '"0"' } });
    await sendRequest(transfer, { path: '/transfers', body: { to: 'wire-b', amount: 1 } });
    await sendRequest(player, { method: 'GET', path: '/players/me' });
    const bought = { key: newKey(), path: '/purchases', body: { sku: 'potion', quantity: 1 } };
    const { json } = await sendRequest(purchase, bought);
    await sendRequest(purchase, bought);
    const read = { method: 'GET', path: '/purchases/x' };
    await sendRequest(receipt, { ...read, params: { id: String(json['id']) } });
    await sendRequest(receipt, { ...read, params: { id: 'none' } });
  }
  expect([...kinds].sort()).toEqual([
    '200',
    '201',
    '402 INSUFFICIENT_COINS',
    '404 NOT_FOUND',
    '409 ALREADY_EXISTS',
    '412 VERSION_MISMATCH',
  ]);
  expect(proxy.traffic.connections).toBe(1);
  const lost = proxy.dropAfter('COMMIT\0');
  expect((await sendRequest(spend, { body: { amount: 1 } })).status).toBe(200);
  await lost;
  return said();
}

/** One run of the purge, with one row for each of its sweeps. */
async function purge(): Promise<Said> {
  await db.sql(
    `INSERT INTO player_mutation_idempotency VALUES ('wire-a', 'old', now() - interval '9 days')`,
  );
  await db.sql(
    `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status,
                                      lease_owner, lease_expires_at, created_at, completed_at, response)
     SELECT 'wire-a', sha256('endpoint'), sha256(state::bytea), '1:old', state, gen_random_uuid(),
            old, old, CASE state WHEN 'completed' THEN old END, CASE state WHEN 'completed' THEN ''::bytea END
       FROM unnest(ARRAY['completed', 'in_progress']) state, (SELECT now() - interval '9 days' AS old) t`,
  );
  const { proxy, said } = await listen(db.purgeUrl);
  const worker = createPurge({ DATABASE_URL: db.apiUrl, PURGE_DATABASE_URL: proxy.url });
  onTestFinished(() => worker.close());
  expect(await worker.run({})).toMatchObject({ rows: 3 });
  return said();
}

function expectNothingPins({ startups, statements }: Said): void {
  expect(startups.flat().filter((name) => !ACCEPTED.has(name))).toEqual([]);
  expect(statements.filter(({ name }) => name !== '')).toEqual([]);
  expect(statements.filter(({ text }) => PINNING.test(text))).toEqual([]);
  expect(statements.filter(({ text }) => text.length > 16_384)).toEqual([]);
}

describe.each(['on', 'off'])('a service with pipelining %s', (pipeline) => {
  test('the service sends nothing that a proxy refuses, and nothing that pins (C56, C57, C58)', async () => {
    const said = await talk(pipeline);
    expectNothingPins(said);
    expect(said.statements.length).toBeGreaterThan(400);
    const texts = said.statements.map(({ text }) => text).join();
    for (const each of ['pg_xact_status', 'claim_marker', 'SAVEPOINT'])
      expect(texts).toContain(each);
    expect(said.startups.length).toBeGreaterThan(1);
  });
});

test('the purge sends nothing that a proxy refuses, and nothing that pins (C56, C57, C58)', async () => {
  const said = await purge();
  expectNothingPins(said);
  expect(said.startups).toHaveLength(1);
  expect(said.statements.filter(({ text }) => text.includes('DELETE')).length).toBeGreaterThan(2);
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

test('the rule knows the statements that pin', () => {
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
