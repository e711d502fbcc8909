import { Redis } from 'ioredis';
import { expect, inject } from 'vitest';
import { spendCoins } from '../../functions/players/spend-coins.ts';
import { transferCoins } from '../../functions/players/transfer-coins.ts';
import type { HttpEvent } from '../../shared/index.ts';
import { createService, type Handler, type Service } from '../../shared/service/index.ts';
import {
  createTestDatabase,
  markersOf,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../support/database.ts';
import { PATIENT } from '../support/patience.ts';
import { ENTRIES, TEST_NAMESPACE } from '../support/redis.ts';
import { type Answer, answerOf, lambdaContext, newKey } from '../support/requests.ts';

/** The reference service's mutations on a database of the caller's own and on Redis. */
export interface Fixture {
  readonly db: TestDatabase;
  readonly service: Service;
  readonly redis: Redis;
  readonly spend: Handler;
  readonly transfer: Handler;
  /** A new player of 1,000 coins. */
  newPlayer(coins?: number): Promise<string>;
  /** What Redis holds under keys that begin so, by key. */
  entriesOf(principal: string): Promise<string[]>;
  close(): Promise<void>;
}

export async function openFixture(environment: Record<string, string> = {}): Promise<Fixture> {
  const db = await createTestDatabase();
  const redisUrl = inject('redisUrl');
  const redis = new Redis(redisUrl, { lazyConnect: true });
  const service = createService({
    DATABASE_URL: db.apiUrl,
    REDIS_URL: redisUrl,
    BACKSTOP_NAMESPACE: TEST_NAMESPACE,
    BACKSTOP_POOL_MAX: '4',
    ...PATIENT,
    ...environment,
  });
  return {
    db,
    service,
    redis,
    spend: service.mutation(spendCoins),
    transfer: service.mutation(transferCoins),
    newPlayer: async (coins) => {
      const principal = newKey();
      await seedPlayer(db, principal, coins);
      return principal;
    },
    entriesOf: (principal) => redis.keys(`${ENTRIES}${encodeURIComponent(principal)}:*`),
    close: async () => {
      redis.disconnect();
      await service.close();
      await db.drop();
    },
  };
}

/** Each invocation has an event of its own: a body parser writes into it. */
export async function sendEvent(handler: Handler, event: unknown): Promise<Answer> {
  return answerOf(await handler(structuredClone(event) as HttpEvent, lambdaContext()));
}

/** `event` with these headers instead of its own, in both maps of a payload 1.0; undefined takes one away. */
export function withHeaders(
  event: HttpEvent,
  changed: Readonly<Record<string, string | undefined>>,
): HttpEvent {
  const names = Object.keys(changed).map((name) => name.toLowerCase());
  const given = Object.entries(changed).filter(([, value]) => value !== undefined);
  const kept = (headers: object | null | undefined) =>
    Object.entries(headers ?? {}).filter(([name]) => !names.includes(name.toLowerCase()));
  return {
    ...event,
    headers: Object.fromEntries([...kept(event.headers), ...given]),
    ...('multiValueHeaders' in event && {
      multiValueHeaders: Object.fromEntries([
        ...kept(event.multiValueHeaders),
        ...given.map(([name, value]) => [name, [value]]),
      ]),
    }),
  } as HttpEvent;
}

/** A refusal that may not be sent again as it is. */
export function expectRefusal(answer: Answer, status: number, code: string): void {
  expect([answer.status, answer.code]).toEqual([status, code]);
  expect(answer.json).toMatchObject({ status, code, retryable: false });
  expect(answer.json['detail']).toMatch(/\w/);
  expect(answer.headers).not.toHaveProperty('retry-after');
  expect(answer.headers).not.toHaveProperty('idempotency-replayed');
  expect(answer.headers).not.toHaveProperty('idempotency-expires');
}

/** No claim in either store, and the players as they were. */
export async function expectNoTrace(
  fixture: Fixture,
  players: readonly string[],
  coins = 1000,
): Promise<void> {
  for (const player of players) {
    expect(await markersOf(fixture.db, player)).toEqual([]);
    expect(await fixture.entriesOf(player)).toEqual([]);
    expect(await playerOf(fixture.db, player)).toEqual({ coins, version: 1 });
  }
}
