import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { spendCoins } from '../../functions/players/spend-coins.ts';
import {
  createTestDatabase,
  markersOf,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../support/database.ts';
import { newKey, send } from '../support/requests.ts';
import { testService } from '../support/service.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());

describe.each([{ pipeline: 'on' }, { pipeline: 'off' }])(
  'the way of a request, pipelining $pipeline',
  ({ pipeline }) => {
    test('a request has its effect, is replayed byte for byte, and refuses another body', async () => {
      const principal = newKey();
      await seedPlayer(db, principal);
      const spend = testService(db, {
        REDIS_URL: inject('redisUrl'),
        BACKSTOP_PIPELINE: pipeline,
      }).mutation(spendCoins);
      const request = { principal, key: newKey(), body: { amount: 10 } };

      const first = await send(spend, request);
      expect(first.json).toEqual({ userId: principal, coins: 990, dataVersion: '2' });
      expect(first.status).toBe(200);
      expect(first.headers['idempotency-replayed']).toBeUndefined();
      const again = await send(spend, request);
      expect(again.headers['idempotency-replayed']).toBe('true');
      expect(again.text).toBe(first.text);
      expect(again.headers['idempotency-expires']).toBe(first.headers['idempotency-expires']);
      const other = await send(spend, { ...request, body: { amount: 11 } });
      expect([other.status, other.code]).toEqual([422, 'KEY_REUSED']);
      expect(await playerOf(db, principal)).toEqual({ coins: 990, version: 2 });
      expect(await markersOf(db, principal)).toEqual([request.key]);
    });
  },
);
