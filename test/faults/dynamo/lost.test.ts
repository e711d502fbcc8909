/** C65, in DynamoDB: the transaction was sent, and its answer did not come. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { awardBadge } from '../../../functions/badges/award-badge.ts';
import {
  badgeRequest,
  type DynamoFixture,
  openDynamoFixture,
} from '../../support/dynamo-fixture.ts';
import { dynamodbUrl } from '../../support/dynamodb.ts';
import {
  answer,
  type Behaviour,
  cancelled,
  hold,
  loseAnswer,
  loseRequest,
  passOn,
  THROTTLED,
} from '../../support/http-fault-proxy.ts';
import { working } from '../../support/patience.ts';
import { type Answer, send } from '../../support/requests.ts';

const url = await dynamodbUrl();
const WRITE = 'TransactWriteItems';
const SENDS = 3;
/** Short enough for tests that wait for it, long enough for a busy machine's DynamoDB. */
const REQUEST_TIMEOUT_MS = 3000;

describe.skipIf(url === undefined)('a transaction without an answer (C65)', () => {
  let fixture: DynamoFixture;
  beforeAll(async () => {
    fixture = await openDynamoFixture(url as string, {
      BACKSTOP_DYNAMO_REQUEST_TIMEOUT_MS: String(REQUEST_TIMEOUT_MS),
    });
  });
  afterAll(() => fixture.close());
  afterEach(() => fixture.proxy.pass());

  async function expectOneAward(principal: string): Promise<void> {
    expect(await fixture.badgesOf(principal)).toEqual({ badges: ['gold'], version: 1 });
    expect(await fixture.markersOf(principal)).toHaveLength(1);
  }

  function expectFresh(answered: Answer): void {
    expect([answered.status, answered.json['badges']]).toEqual([201, ['gold']]);
    expect(answered.headers).not.toHaveProperty('idempotency-replayed');
    expect(Date.parse(answered.headers['idempotency-expires'] as string)).toBeGreaterThan(0);
  }

  function expectReplay(answered: Answer, first?: Answer): void {
    expect([answered.status, answered.json['badges']]).toEqual([201, ['gold']]);
    expect(answered.headers['idempotency-replayed']).toBe('true');
    if (first) expect(answered.text).toBe(first.text);
  }

  function expectUnknown(answered: Answer): void {
    expect([answered.status, answered.code]).toEqual([503, 'OUTCOME_UNKNOWN']);
    expect(answered.headers['retry-after']).toBe('1');
    expect(answered.json['retryable']).toBe(true);
  }

  const serverError = answer({ type: 'InternalServerError', status: 500 });
  const failedThough: Behaviour = async (exchange) => {
    await exchange.forward();
    await serverError(exchange);
  };

  describe.each<[string, Behaviour]>([
    ['reset after it was carried out', loseAnswer('reset')],
    ['silence after it was carried out', loseAnswer('silence')],
    ['an error of the server after it was carried out', failedThough],
    ['reset on its way there', loseRequest('reset')],
    ['silence on its way there', loseRequest('silence')],
  ])('one send meets %s', (_, lose) => {
    test('the same transaction is sent again under the same token, and makes one award', async () => {
      const sent = badgeRequest();
      fixture.proxy.next(WRITE, lose);
      fixture.takeTokens();
      const first = await send(fixture.award, sent);
      expectFresh(first);
      const tokens = fixture.takeTokens();
      expect(tokens).toHaveLength(2);
      expect(new Set(tokens).size).toBe(1);
      expect(tokens[0]).not.toContain(sent.key);
      expectReplay(await send(fixture.award, sent), first);
      await expectOneAward(sent.principal);
    });

    test('a request without a key is sent again as well', async () => {
      const award = fixture.service({ BACKSTOP_KEY_MODE: 'optional' }).mutation(awardBadge);
      const sent = { ...badgeRequest(), key: null };
      fixture.proxy.next(WRITE, lose);
      expect((await send(award, sent)).status).toBe(201);
      expect(await fixture.badgesOf(sent.principal)).toEqual({ badges: ['gold'], version: 1 });
      expect(await fixture.markersOf(sent.principal)).toEqual([]);
    });
  });

  test('the marker that bears our attempt says that it was done when each answer is lost', async () => {
    const sent = badgeRequest();
    fixture.proxy.next(WRITE, loseAnswer(), SENDS);
    const first = await send(fixture.award, sent);
    expectFresh(first);
    expectReplay(await send(fixture.award, sent), first);
    await expectOneAward(sent.principal);
  });

  test('the outcome is unknown when each request is lost, and the same key goes through later', async () => {
    const sent = badgeRequest();
    fixture.proxy.next(WRITE, loseRequest(), SENDS);
    expectUnknown(await send(fixture.award, sent));
    expect(await fixture.markersOf(sent.principal)).toEqual([]);
    expectFresh(await send(fixture.award, sent));
    await expectOneAward(sent.principal);
  });

  test('the outcome is unknown when nobody can be asked either, and the retry is a replay', async () => {
    const sent = badgeRequest();
    fixture.proxy.next('GetItem', passOn, 2);
    fixture.proxy.next('GetItem', loseRequest(), SENDS);
    fixture.proxy.next(WRITE, loseAnswer(), SENDS);
    expectUnknown(await send(fixture.award, sent));
    expectReplay(await send(fixture.award, sent));
    await expectOneAward(sent.principal);
  });

  describe('a first send that arrives late, when its sender has given up', () => {
    async function giveUp(sent: ReturnType<typeof badgeRequest>) {
      const held = hold();
      fixture.proxy.next(WRITE, held.behaviour);
      fixture.proxy.next(WRITE, loseRequest(), SENDS - 1);
      expectUnknown(await send(fixture.award, sent));
      return held;
    }

    test('the late send is refused when it comes after the retry', async () => {
      const sent = badgeRequest();
      const held = await giveUp(sent);
      const retried = await send(fixture.award, sent);
      expectFresh(retried);
      const late = await held.deliver();
      expect(late.body.toString()).toContain('TransactionCanceledException');
      expectReplay(await send(fixture.award, sent), retried);
      await expectOneAward(sent.principal);
    });

    test('the retry repeats the answer of the late send when that comes first', async () => {
      const sent = badgeRequest();
      const held = await giveUp(sent);
      expect((await held.deliver()).status).toBe(200);
      expectReplay(await send(fixture.award, sent));
      await expectOneAward(sent.principal);
    });

    test('one of both is refused when the late send comes while the retry has seen no marker yet', async () => {
      const sent = badgeRequest();
      const held = await giveUp(sent);
      const retry = hold();
      fixture.proxy.next(WRITE, retry.behaviour);
      const retried = send(fixture.award, sent);
      await retry.arrived;
      expect((await held.deliver()).status).toBe(200);
      await retry.deliver();
      expectReplay(await retried);
      await expectOneAward(sent.principal);
    });
  });

  describe('once a send is in doubt, a refusal of the next one decides nothing', () => {
    const refusals: [string, Behaviour][] = [
      ['throttled', answer(THROTTLED)],
      ['not allowed', answer({ type: 'AccessDeniedException' })],
      ['a conflict', answer(cancelled('None', 'TransactionConflict'))],
      ['a conflict on the marker', answer(cancelled('TransactionConflict', 'None'))],
      ['still at work', answer({ type: 'TransactionInProgressException' })],
    ];

    test.each(refusals)('the answer "%s" hides no success', async (_, refuse) => {
      const sent = badgeRequest();
      fixture.proxy.next(WRITE, loseAnswer());
      fixture.proxy.next(WRITE, refuse, SENDS - 1);
      fixture.takeTokens();
      expectFresh(await send(fixture.award, sent));
      expect(new Set(fixture.takeTokens()).size).toBe(1);
      await expectOneAward(sent.principal);
    });

    test.each(refusals)('the answer "%s" leaves a lost send unknown', async (_, refuse) => {
      const sent = badgeRequest();
      fixture.proxy.next(WRITE, loseRequest());
      fixture.proxy.next(WRITE, refuse, SENDS - 1);
      fixture.takeTokens();
      expectUnknown(await send(fixture.award, sent));
      expect(new Set(fixture.takeTokens()).size).toBe(1);
      await fixture.proxy.pass();
      expectFresh(await send(fixture.award, sent));
      await expectOneAward(sent.principal);
    });

    test('the answer of another request is repeated when its marker stands there', async () => {
      const sent = badgeRequest();
      const held = hold();
      fixture.proxy.next(WRITE, held.behaviour);
      const slow = send(fixture.award, sent);
      await held.arrived;
      const fast = await send(fixture.award, sent);
      fixture.proxy.next(WRITE, loseAnswer(), SENDS - 1);
      await held.answerInstead({ type: 'InternalServerError', status: 500 });
      expectReplay(await slow, fast);
      await expectOneAward(sent.principal);
    });
  });

  test('the SDK waits for a transaction that is still at work and then done', async () => {
    const sent = badgeRequest();
    fixture.proxy.next(WRITE, loseAnswer('reset'));
    fixture.proxy.next(WRITE, answer({ type: 'TransactionInProgressException' }));
    expectFresh(await send(fixture.award, sent));
    await expectOneAward(sent.principal);
  });

  test('the outcome is unknown while a transaction is still at work and never done, whoever sent it', async () => {
    const sent = badgeRequest();
    fixture.proxy.next(WRITE, answer({ type: 'TransactionInProgressException' }), SENDS);
    expectUnknown(await send(fixture.award, sent));
    expectFresh(await send(fixture.award, sent));
    await expectOneAward(sent.principal);
  });

  describe('a request without a key', () => {
    const optional = () => fixture.service({ BACKSTOP_KEY_MODE: 'optional' }).mutation(awardBadge);

    test('an answer that is lost for good is OUTCOME_UNKNOWN, and not to be sent again', async () => {
      const sent = { ...badgeRequest(), key: null };
      fixture.proxy.next(WRITE, loseAnswer(), SENDS);
      const lost = await send(optional(), sent);
      expect([lost.status, lost.code]).toEqual([503, 'OUTCOME_UNKNOWN']);
      expect(lost.json['retryable']).toBe(false);
      expect(lost.headers).not.toHaveProperty('retry-after');
      expect(await fixture.badgesOf(sent.principal)).toEqual({ badges: ['gold'], version: 1 });
    });

    test.each([
      ['a conflict', cancelled('TransactionConflict'), 409, 'CONTENTION'],
      ['throttled', cancelled('ThrottlingError'), 503, 'UNAVAILABLE'],
    ])('%s is answered at once, since nothing is tried again', async (_, error, status, code) => {
      const sent = { ...badgeRequest(), key: null };
      fixture.proxy.next(WRITE, answer(error));
      fixture.takeTokens();
      const refused = await send(optional(), sent);
      expect([refused.status, refused.code]).toEqual([status, code]);
      expect(fixture.takeTokens()).toHaveLength(1);
      expect(await fixture.badgesOf(sent.principal)).toEqual({ badges: [], version: 0 });
    });
  });

  describe('a DynamoDB that has gone silent costs no more than the time of the request (C37)', () => {
    /** Less than its sends would take: it answers because its time is up. */
    const timed = (sent: ReturnType<typeof badgeRequest>) =>
      send(fixture.award, sent, working(1.5 * REQUEST_TIMEOUT_MS));

    test('nothing took effect when it is silent from the start', async () => {
      const sent = badgeRequest();
      fixture.proxy.next('GetItem', loseRequest('silence'), SENDS);
      const late = await timed(sent);
      expect([late.status, late.code]).toEqual([503, 'UNAVAILABLE']);
      await fixture.proxy.pass();
      expectFresh(await send(fixture.award, sent));
      await expectOneAward(sent.principal);
    });

    test('the outcome is unknown when it is silent from the write on, and the retry is a replay', async () => {
      const sent = badgeRequest();
      fixture.proxy.next('GetItem', passOn, 2);
      fixture.proxy.next('GetItem', loseRequest('silence'), SENDS);
      fixture.proxy.next(WRITE, loseAnswer('silence'), SENDS);
      expectUnknown(await timed(sent));
      await fixture.proxy.pass();
      expectReplay(await send(fixture.award, sent));
      await expectOneAward(sent.principal);
    });

    test('one silent send costs its time-out, and no more', async () => {
      const sent = badgeRequest();
      fixture.proxy.next(WRITE, loseRequest('silence'));
      fixture.takeTokens();
      const startMs = performance.now();
      expectFresh(await send(fixture.award, sent));
      expect(performance.now() - startMs).toBeGreaterThanOrEqual(REQUEST_TIMEOUT_MS - 50);
      expect(fixture.takeTokens()).toHaveLength(2);
    });
  });

  test('a connection that was lost between two requests fails neither (C38)', async () => {
    await send(fixture.award, badgeRequest());
    await fixture.proxy.refuse();
    await fixture.proxy.pass();
    const sent = badgeRequest();
    expectFresh(await send(fixture.award, sent));
    await expectOneAward(sent.principal);
  });
});
