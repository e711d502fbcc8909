/** C102: what DynamoDB says when it refuses a transaction, reason by reason and by position. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  badgeRequest,
  type DynamoFixture,
  openDynamoFixture,
} from '../../support/dynamo-fixture.ts';
import { dynamodbUrl } from '../../support/dynamodb.ts';
import { answer, cancelled, hold, passOn, THROTTLED } from '../../support/http-fault-proxy.ts';
import { newKey, send } from '../../support/requests.ts';

const url = await dynamodbUrl();
const ALWAYS = 100;

describe.skipIf(url === undefined)('a transaction that DynamoDB refuses (C102)', () => {
  let fixture: DynamoFixture;
  beforeAll(async () => {
    fixture = await openDynamoFixture(url as string);
  });
  afterAll(() => fixture.close());
  afterEach(() => fixture.proxy.pass());

  async function expectNoTrace(principal: string): Promise<void> {
    expect(await fixture.markersOf(principal)).toEqual([]);
    expect(await fixture.badgesOf(principal)).toEqual({ badges: [], version: 0 });
  }

  /** Once the trouble is over the same key goes through, and only once. */
  async function expectToGoThrough(sent: ReturnType<typeof badgeRequest>): Promise<void> {
    await fixture.proxy.pass();
    expect((await send(fixture.award, sent)).status).toBe(201);
    const again = await send(fixture.award, sent);
    expect([again.status, again.headers['idempotency-replayed']]).toEqual([201, 'true']);
    expect(await fixture.badgesOf(sent.principal)).toEqual({ badges: ['gold'], version: 1 });
    expect(await fixture.markersOf(sent.principal)).toHaveLength(1);
  }

  describe.each([
    ['a conflict on an item of the work', ['None', 'TransactionConflict'], 409, 'CONTENTION'],
    [
      'a condition of the work that keeps failing',
      ['None', 'ConditionalCheckFailed'],
      409,
      'CONTENTION',
    ],
    ['a conflict on the marker', ['TransactionConflict', 'None'], 409, 'ABORTED'],
    ['a marker that is gone again (C49)', ['ConditionalCheckFailed', 'None'], 409, 'ABORTED'],
    ['a conflict on both', ['TransactionConflict', 'TransactionConflict'], 409, 'ABORTED'],
    ['throttling', ['None', 'ThrottlingError'], 503, 'UNAVAILABLE'],
    ['throttling of the marker', ['ThrottlingError', 'None'], 503, 'UNAVAILABLE'],
    ['too little throughput', ['None', 'ProvisionedThroughputExceeded'], 503, 'UNAVAILABLE'],
    ['no reasons at all', [], 503, 'UNAVAILABLE'],
    ['reasons that say nothing', ['None', 'None'], 503, 'UNAVAILABLE'],
    ['fewer reasons than items', ['ConditionalCheckFailed'], 503, 'UNAVAILABLE'],
  ])('the reason is %s', (_, codes, status, code) => {
    test('the next try commits when the reason passes, under a token of its own', async () => {
      const sent = badgeRequest();
      fixture.proxy.next('TransactWriteItems', answer(cancelled(...codes)), 2);
      fixture.takeTokens();
      const first = await send(fixture.award, sent);
      expect([first.status, first.headers['idempotency-replayed']]).toEqual([201, undefined]);
      expect(new Set(fixture.takeTokens()).size).toBe(3);
      expect(await fixture.badgesOf(sent.principal)).toEqual({ badges: ['gold'], version: 1 });
      expect(await fixture.markersOf(sent.principal)).toHaveLength(1);
    });

    test(`the answer is ${status} ${code} after five tries when the reason stays, and nothing is left`, async () => {
      const sent = badgeRequest();
      fixture.proxy.next('TransactWriteItems', answer(cancelled(...codes)), ALWAYS);
      fixture.takeTokens();
      const refused = await send(fixture.award, sent);
      expect([refused.status, refused.code]).toEqual([status, code]);
      expect(refused.headers['retry-after']).toMatch(/^[12]$/);
      expect(refused.json['retryable']).toBe(true);
      expect(fixture.takeTokens()).toHaveLength(5);
      await expectNoTrace(sent.principal);
      await expectToGoThrough(sent);
    });
  });

  test.each([
    ['a reason that is a mistake of ours', cancelled('None', 'ValidationError')],
    ['an item that cannot be', { type: 'ValidationException' }],
    ['no right to it', { type: 'AccessDeniedException' }],
  ])('%s is no reason to try again: it is 500 at once, and nothing is left', async (_, error) => {
    const sent = badgeRequest();
    fixture.proxy.next('TransactWriteItems', answer(error), ALWAYS);
    fixture.takeTokens();
    const refused = await send(fixture.award, sent);
    expect([refused.status, refused.code]).toEqual([500, 'INTERNAL']);
    expect(fixture.takeTokens()).toHaveLength(1);
    await expectNoTrace(sent.principal);
    await expectToGoThrough(sent);
  });

  describe.each(['GetItem', 'TransactWriteItems'])('the operation %s fails', (operation) => {
    test.each([
      'ThrottlingException',
      'ProvisionedThroughputExceededException',
      'RequestLimitExceeded',
    ])('the same is sent again after %s', async (type) => {
      const sent = badgeRequest();
      fixture.proxy.next(operation, answer({ type }));
      expect((await send(fixture.award, sent)).status).toBe(201);
      expect(await fixture.badgesOf(sent.principal)).toEqual({ badges: ['gold'], version: 1 });
    });

    test.each([THROTTLED, { type: 'ResourceNotFoundException' }])(
      '$type that stays is a 503 that names DynamoDB, and nothing is left',
      async (error) => {
        const sent = badgeRequest();
        fixture.proxy.next(operation, answer(error), ALWAYS);
        const refused = await send(fixture.award, sent);
        expect([refused.status, refused.code]).toEqual([503, 'UNAVAILABLE']);
        expect(refused.json['detail']).toMatch(/^DynamoDB cannot be reached/);
        expect(refused.headers['retry-after']).toBe('1');
        await expectNoTrace(sent.principal);
        await expectToGoThrough(sent);
      },
    );
  });

  test('a read of the work that fails is 503, and nothing is left', async () => {
    const sent = badgeRequest();
    fixture.proxy.next('GetItem', passOn); // The marker.
    fixture.proxy.next('GetItem', (exchange) => exchange.reset(), ALWAYS);
    const refused = await send(fixture.award, sent);
    expect([refused.status, refused.code]).toEqual([503, 'UNAVAILABLE']);
    await expectNoTrace(sent.principal);
    await expectToGoThrough(sent);
  });

  test('a reader is answered 503 as well, and 200 once DynamoDB is back', async () => {
    const principal = `p-${newKey()}`;
    await fixture.proxy.refuse();
    const refused = await send(fixture.list, {
      method: 'GET',
      path: '/players/me/badges',
      principal,
    });
    expect([refused.status, refused.code]).toEqual([503, 'UNAVAILABLE']);
    await fixture.proxy.pass();
    const answered = await send(fixture.list, {
      method: 'GET',
      path: '/players/me/badges',
      principal,
    });
    expect([answered.status, answered.json]).toEqual([
      200,
      { userId: principal, badges: [], dataVersion: '0' },
    ]);
  });

  test('the work runs again on what is there now when a version moved in between', async () => {
    const sent = badgeRequest('second');
    const held = hold();
    fixture.proxy.next('TransactWriteItems', held.behaviour);
    const waiting = send(fixture.award, sent);
    await held.arrived;
    const other = { ...badgeRequest('first'), principal: sent.principal };
    expect((await send(fixture.award, other)).status).toBe(201);
    await held.deliver();
    const answered = await waiting;
    expect([answered.status, answered.json['badges']]).toEqual([201, ['first', 'second']]);
    expect(await fixture.badgesOf(sent.principal)).toEqual({
      badges: ['first', 'second'],
      version: 2,
    });
  });

  test('a duplicate that was faster gives its answer, and no second award is made', async () => {
    const sent = badgeRequest();
    const held = hold();
    fixture.proxy.next('TransactWriteItems', held.behaviour);
    const slow = send(fixture.award, sent);
    await held.arrived;
    const fast = await send(fixture.award, sent);
    expect([fast.status, fast.headers['idempotency-replayed']]).toEqual([201, undefined]);
    await held.deliver();
    const repeated = await slow;
    expect([repeated.status, repeated.text]).toEqual([201, fast.text]);
    expect(repeated.headers['idempotency-replayed']).toBe('true');
    expect(repeated.headers['idempotency-expires']).toBe(fast.headers['idempotency-expires']);
    expect(await fixture.badgesOf(sent.principal)).toEqual({ badges: ['gold'], version: 1 });
  });

  describe('a duplicate that was faster and has moved the version as well', () => {
    async function overtaken() {
      const sent = badgeRequest();
      const held = hold();
      fixture.proxy.next('TransactWriteItems', held.behaviour);
      const slow = send(fixture.award, sent);
      await held.arrived;
      return { sent, held, slow, fast: await send(fixture.award, sent) };
    }

    test('the marker is judged first, and at once', async () => {
      const { sent, held, slow, fast } = await overtaken();
      const [Item] = await fixture.markersOf(sent.principal);
      const calls = fixture.proxy.calls.length;
      const { type } = cancelled();
      const Code = 'ConditionalCheckFailed';
      const CancellationReasons = [{ Code, Item }, { Code }];
      await held.answerInstead({ type, members: { CancellationReasons } });
      const repeated = await slow;
      expect([repeated.text, repeated.headers['idempotency-replayed']]).toEqual([
        fast.text,
        'true',
      ]);
      expect(fixture.proxy.calls).toHaveLength(calls);
      expect((await fixture.badgesOf(sent.principal)).version).toBe(1);
    });

    test('the marker is read when it did not come along with its reason', async () => {
      const { sent, held, slow, fast } = await overtaken();
      fixture.takeTokens();
      await held.answerInstead(cancelled('ConditionalCheckFailed', 'ConditionalCheckFailed'));
      const repeated = await slow;
      expect([repeated.text, repeated.headers['idempotency-replayed']]).toEqual([
        fast.text,
        'true',
      ]);
      expect(fixture.takeTokens()).toEqual([]);
      expect((await fixture.badgesOf(sent.principal)).version).toBe(1);
    });
  });

  test('another request that was faster under this key is 422', async () => {
    const sent = badgeRequest();
    const held = hold();
    fixture.proxy.next('TransactWriteItems', held.behaviour);
    const slow = send(fixture.award, sent);
    await held.arrived;
    expect((await send(fixture.award, { ...sent, body: { badge: 'tin' } })).status).toBe(201);
    await held.deliver();
    const refused = await slow;
    expect([refused.status, refused.code]).toEqual([422, 'KEY_REUSED']);
    expect(await fixture.badgesOf(sent.principal)).toEqual({ badges: ['tin'], version: 1 });
  });

  test('an If-Match that a faster duplicate has made stale is a replay, and no 412', async () => {
    const principal = `p-${newKey()}`;
    await send(fixture.award, { ...badgeRequest('first'), principal });
    const sent = { ...badgeRequest('second'), principal, headers: { 'If-Match': '"1"' } };
    const held = hold();
    // The duplicate commits after the marker was looked for and before the work reads.
    fixture.proxy.next('GetItem', passOn);
    fixture.proxy.next('GetItem', held.behaviour);
    const slow = send(fixture.award, sent);
    await held.arrived;
    const fast = await send(fixture.award, sent);
    expect(fast.status).toBe(201);
    await held.deliver();
    const repeated = await slow;
    expect([repeated.status, repeated.text]).toEqual([201, fast.text]);
    expect(repeated.headers['idempotency-replayed']).toBe('true');
    // Without a duplicate it is stale, and leaves no trace.
    const stale = await send(fixture.award, { ...sent, key: newKey() });
    expect([stale.status, stale.code]).toEqual([412, 'VERSION_MISMATCH']);
    expect(await fixture.markersOf(principal)).toHaveLength(2);
  });

  test('ten writers of one item are each told to send it again until done, and each is done once (C59)', async () => {
    const principal = `p-${newKey()}`;
    const all = Array.from({ length: 10 }, (_, n) => ({
      ...badgeRequest(`badge-${n}`),
      principal,
    }));
    const rounds: number[] = [];
    let open = all;
    while (open.length > 0 && rounds.length < 10) {
      const answers = await Promise.all(open.map((sent) => send(fixture.award, sent)));
      expect(answers.filter(({ status, code }) => status !== 201 && code !== 'CONTENTION')).toEqual(
        [],
      );
      rounds.push(answers.filter(({ status }) => status === 201).length);
      open = open.filter((_, n) => answers[n]?.status !== 201);
    }
    expect(rounds.reduce((sum, count) => sum + count)).toBe(10);
    const { badges, version } = await fixture.badgesOf(principal);
    expect(badges.toSorted()).toEqual(all.map(({ body }) => body.badge).toSorted());
    expect(version).toBe(10);
  });
});
