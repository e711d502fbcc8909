import { AsyncLocalStorage } from 'node:async_hooks';
import { readFileSync } from 'node:fs';
import { DescribeTimeToLiveCommand } from '@aws-sdk/client-dynamodb';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Item } from '../../../shared/dynamodb/index.ts';
import type { HttpResponse } from '../../../shared/index.ts';
import {
  badgeRequest,
  type DynamoFixture,
  openDynamoFixture,
} from '../../support/dynamo-fixture.ts';
import { dynamodbUrl } from '../../support/dynamodb.ts';
import { send } from '../../support/requests.ts';

const url = await dynamodbUrl();
const HOUR_SECONDS = 3600;
const ITEM_BYTES_MAX = 409_600;

describe.skipIf(url === undefined)('the marker item', () => {
  let fixture: DynamoFixture;
  beforeAll(async () => {
    fixture = await openDynamoFixture(url as string);
  });
  afterAll(() => fixture.close());

  async function markerOf(principal: string): Promise<Item> {
    const [marker, ...others] = await fixture.markersOf(principal);
    if (!marker || others.length > 0) throw new Error('not one marker');
    return marker;
  }

  const secondsOf = (item: Item, name: string) => Number(item[name]?.N);

  async function expectReplay(sent: ReturnType<typeof badgeRequest>): Promise<void> {
    const again = await send(fixture.award, sent);
    expect([again.status, again.headers['idempotency-replayed']]).toEqual([201, 'true']);
    expect((await fixture.badgesOf(sent.principal)).version).toBe(1);
  }

  test('the expiry is in the attribute that the table declares, in whole seconds (C101)', async () => {
    const { TimeToLiveDescription } = await fixture.table.table.client.send(
      new DescribeTimeToLiveCommand({ TableName: fixture.table.name }),
    );
    const template = readFileSync(new URL('../../../infra/table.yml', import.meta.url), 'utf8');
    const [, declared] = /TimeToLiveSpecification: \{ AttributeName: (\w+), Enabled: true \}/.exec(
      template,
    ) as RegExpExecArray;
    expect(TimeToLiveDescription?.AttributeName).toBe(declared);

    const sent = badgeRequest();
    const first = await send(fixture.award, sent);
    const marker = await markerOf(sent.principal);
    expect(marker[declared as string]?.N).toMatch(/^\d{10}$/);
    const publishedSeconds = Date.parse(first.headers['idempotency-expires'] as string) / 1000;
    expect(secondsOf(marker, declared as string)).toBe(publishedSeconds + HOUR_SECONDS);
    expect(Math.abs(publishedSeconds - (Date.now() / 1000 + 48 * HOUR_SECONDS))).toBeLessThan(60);
  });

  test('a marker past its expiry answers as long as its deletion is still to come (C100)', async () => {
    const sent = badgeRequest();
    await send(fixture.award, sent);
    const marker = await markerOf(sent.principal);
    // Without the attribute: DynamoDB Local's own deletion comes within seconds.
    const { expires_at: _, ...rest } = marker;
    const agoSeconds = Math.floor(Date.now() / 1000) - 10 * 24 * HOUR_SECONDS;
    await fixture.table.put({ ...rest, retained_until: { N: String(agoSeconds) } });
    await expectReplay(sent);
    const other = await send(fixture.award, { ...sent, body: { badge: 'tin' } });
    expect(other.code).toBe('KEY_REUSED');
    // And with it, as long as it is there.
    await fixture.table.put({
      ...marker,
      retained_until: { N: String(agoSeconds) },
      expires_at: { N: String(agoSeconds + HOUR_SECONDS) },
    });
    await expectReplay(sent);
  });

  describe('two callers whose clocks differ by ten minutes (C61)', () => {
    const skewMs = new AsyncLocalStorage<number>();
    const realNow = Date.now;

    /** The clock of each caller: those of `fast` are five minutes ahead, those of `slow` behind. */
    function withClocks() {
      const clock = vi
        .spyOn(Date, 'now')
        .mockImplementation(() => realNow() + (skewMs.getStore() ?? 0));
      onTestFinished(() => clock.mockRestore());
      const by = (ms: number) => (sent: ReturnType<typeof badgeRequest>) =>
        skewMs.run(ms, () => send(fixture.award, sent));
      return { fast: by(5 * 60_000), slow: by(-5 * 60_000) };
    }

    test.each(['fast', 'slow'] as const)('one award is made when the %s is first', async (who) => {
      const callers = withClocks();
      const sent = badgeRequest();
      const first = await callers[who](sent);
      const second = await callers[who === 'fast' ? 'slow' : 'fast'](sent);
      expect([
        first.headers['idempotency-replayed'],
        second.headers['idempotency-replayed'],
      ]).toEqual([undefined, 'true']);
      expect(second.text).toBe(first.text);
      expect(second.headers['idempotency-expires']).toBe(first.headers['idempotency-expires']);
      expect((await fixture.badgesOf(sent.principal)).version).toBe(1);
      // Whichever clock wrote it, DynamoDB deletes it after the retention that others would see.
      const deletedAtMs = secondsOf(await markerOf(sent.principal), 'expires_at') * 1000;
      expect(deletedAtMs).toBeGreaterThan(realNow() + 48 * HOUR_SECONDS * 1000 + 10 * 60_000);
    });

    test('one award each is made when both come at once, many times over', async () => {
      const { fast, slow } = withClocks();
      const all = Array.from({ length: 20 }, () => badgeRequest());
      const answers = await Promise.all(
        all.map((sent, n) =>
          Promise.all(n % 2 === 0 ? [fast(sent), slow(sent)] : [slow(sent), fast(sent)]),
        ),
      );
      for (const [n, both] of answers.entries()) {
        expect(both.map(({ status }) => status)).toEqual([201, 201]);
        const replays = both.filter(({ headers }) => headers['idempotency-replayed'] === 'true');
        expect(replays).toHaveLength(1);
        expect((await fixture.badgesOf(all[n]?.principal as string)).version).toBe(1);
      }
    });
  });

  describe('a response too large for an item', () => {
    // A table of its own: elsewhere the markers are found by reading all that there is.
    let large: DynamoFixture;
    beforeAll(async () => {
      large = await openDynamoFixture(url as string);
    });
    afterAll(() => large.close());

    /** Counts its runs in `effects`, and answers with `body`. */
    function answering(body: string) {
      let runs = 0;
      const service = large.service({ BACKSTOP_STORED_BODY_BYTES_MAX: '1000000' });
      const handler = large.testHandler(async (table, principal) => {
        runs++;
        const response: HttpResponse = { statusCode: 200, body };
        return { writes: [countOne(table.name, principal)], response };
      }, service);
      return { handler, runs: () => runs };
    }

    function countOne(TableName: string, principal: string) {
      return {
        Update: {
          TableName,
          Key: { pk: { S: `effects:${principal}` } },
          UpdateExpression: 'ADD effects :one',
          ExpressionAttributeValues: { ':one': { N: '1' } },
        },
      };
    }

    const effectsOf = async (principal: string) =>
      (await large.table.item(`effects:${principal}`))?.['effects']?.N;

    test('a response of 500 KB goes out whole the first time, and the retry never runs', async () => {
      const body = 'x'.repeat(500_000);
      const { handler, runs } = answering(body);
      const sent = badgeRequest();
      const first = await send(handler, sent);
      expect([first.status, first.text.length]).toEqual([200, 500_000]);
      const again = await send(handler, sent);
      expect([again.status, again.code]).toEqual([409, 'ALREADY_EXISTS']);
      expect(again.headers).not.toHaveProperty('retry-after');
      expect(again.headers['link']).toBe('</players/me/badges>; rel="related"');
      expect(runs()).toBe(1);
      expect(await effectsOf(sent.principal)).toBe('1');
      const other = await send(handler, { ...sent, body: { badge: 'tin' } });
      expect(other.code).toBe('KEY_REUSED');
    });

    // What JSON escapes and what UTF-8 takes more bytes for count as they are stored.
    test.each(['x', 'ü', '"', '\n', '\u0001', '𝄞', '\ud800'])(
      'the last body of %j that fits is kept, and the first that does not leaves a tombstone',
      async (letter) => {
        const perLetter = Buffer.byteLength(JSON.stringify(letter)) - 2;
        const most = Math.floor(ITEM_BYTES_MAX / perLetter);
        // Around the limit DynamoDB itself judges: one byte more than it takes would be a 500.
        for (const less of [0, 200, 1000]) {
          const { handler, runs } = answering(letter.repeat(most - Math.ceil(less / perLetter)));
          const sent = badgeRequest();
          expect((await send(handler, sent)).status).toBe(200);
          const isKept = less > 500;
          const again = await send(handler, sent);
          expect(again.headers['idempotency-replayed'] ?? again.code).toBe(
            isKept ? 'true' : 'ALREADY_EXISTS',
          );
          expect(runs()).toBe(1);
        }
      },
    );

    test('a response of every size around the limit is accepted', async () => {
      const kept: boolean[] = [];
      for (let bytes = ITEM_BYTES_MAX - 520; bytes < ITEM_BYTES_MAX - 320; bytes += 4) {
        const { handler } = answering('x'.repeat(bytes));
        const sent = badgeRequest();
        expect((await send(handler, sent)).status).toBe(200);
        kept.push((await send(handler, sent)).code === undefined);
      }
      // All that fit, and then none: both are seen.
      expect(kept[0]).toBe(true);
      expect(kept.at(-1)).toBe(false);
      expect(kept.lastIndexOf(true)).toBe(kept.indexOf(false) - 1);
    });
  });

  test.each<[string, Item]>([
    ['a fingerprint of another version', { fingerprint: { S: '2:abc' } }],
    ['no fingerprint', { fingerprint: { NULL: true } }],
    ['a response of another version', { response: { S: '{"v":2,"response":"tombstone"}' } }],
    ['a response that is garbage', { response: { S: '{"v":1' } }],
    ['no expiry', { retained_until: { S: 'soon' } }],
  ])('a marker with %s is a used key, and never runs again (C19)', async (_, change) => {
    const sent = badgeRequest();
    await send(fixture.award, sent);
    await fixture.table.put({ ...(await markerOf(sent.principal)), ...change });
    const again = await send(fixture.award, sent);
    expect([again.status, again.code]).toEqual([409, 'ALREADY_EXISTS']);
    expect((await fixture.badgesOf(sent.principal)).version).toBe(1);
  });

  test('a refusal that is returned writes the marker alone, and is repeated', async () => {
    let runs = 0;
    const handler = fixture.testHandler(async (table, principal) => {
      runs++;
      const put = { TableName: table.name, Item: { pk: { S: `effects:${principal}` } } };
      return { writes: [{ Put: put }], response: { statusCode: 402, body: `try ${runs}` } };
    });
    const sent = badgeRequest();
    const first = await send(handler, sent);
    const again = await send(handler, sent);
    expect([first.status, first.text, again.status, again.text]).toEqual([
      402,
      'try 1',
      402,
      'try 1',
    ]);
    expect(again.headers['idempotency-replayed']).toBe('true');
    expect(await fixture.table.item(`effects:${sent.principal}`)).toBeUndefined();
  });

  test('the refusal that won answers all that were sent at once (C16)', async () => {
    let runs = 0;
    const handler = fixture.testHandler(async () => {
      runs++;
      return { writes: [], response: { statusCode: 402, body: `try ${runs}` } };
    });
    const sent = badgeRequest();
    const answers = await Promise.all(Array.from({ length: 10 }, () => send(handler, sent)));
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    const fresh = answers.filter(({ headers }) => !headers['idempotency-replayed']);
    expect(fresh).toHaveLength(1);
  });

  test('a marker holds what the contract keeps, and no more (C04)', async () => {
    const sent = badgeRequest();
    await send(fixture.award, sent);
    const marker = await markerOf(sent.principal);
    expect(Object.keys(marker).toSorted()).toEqual([
      'attempt',
      'expires_at',
      'fingerprint',
      'pk',
      'response',
      'retained_until',
    ]);
    expect(marker['attempt']?.S).toMatch(/^[0-9a-f-]{36}$/);
  });
});
