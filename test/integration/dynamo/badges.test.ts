import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { awardBadge } from '../../../functions/badges/award-badge.ts';
import { type DynamoFixture, openDynamoFixture } from '../../support/dynamo-fixture.ts';
import { dynamodbUrl } from '../../support/dynamodb.ts';
import { newKey, send } from '../../support/requests.ts';

const url = await dynamodbUrl();
const PATH = '/players/me/badges';

describe.skipIf(url === undefined)('the badges of a player', () => {
  let fixture: DynamoFixture;
  beforeAll(async () => {
    fixture = await openDynamoFixture(url as string);
  });
  afterAll(() => fixture.close());

  const request = (badge: unknown = 'gold') => ({
    principal: `p-${newKey()}`,
    key: newKey(),
    path: PATH,
    body: { badge },
  });
  const list = (principal: string) => send(fixture.list, { method: 'GET', path: PATH, principal });

  test('a badge is awarded, replayed byte for byte, refused under another body, and listed', async () => {
    const sent = request();
    const { principal } = sent;
    const first = await send(fixture.award, sent);
    expect([first.status, first.json]).toEqual([
      201,
      { userId: principal, badges: ['gold'], dataVersion: '1' },
    ]);
    expect(first.headers).toMatchObject({ etag: '"1"', location: PATH });
    expect(first.headers).not.toHaveProperty('idempotency-replayed');

    const again = await send(fixture.award, sent);
    expect(again.headers).toEqual({ ...first.headers, 'idempotency-replayed': 'true' });
    expect([again.status, again.text]).toEqual([201, first.text]);
    const other = await send(fixture.award, { ...sent, body: { badge: 'tin' } });
    expect([other.status, other.code]).toEqual([422, 'KEY_REUSED']);

    expect((await send(fixture.award, { ...request(), principal })).json).toEqual({
      userId: principal,
      badges: ['gold', 'gold'],
      dataVersion: '2',
    });
    const listed = await list(principal);
    expect([listed.status, listed.headers['etag']]).toEqual([200, '"2"']);
    expect(listed.json).toEqual({
      userId: principal,
      badges: ['gold', 'gold'],
      dataVersion: '2',
    });
  });

  test('every read is strongly consistent, since an old copy would show a used key as unused', async () => {
    const sent = request();
    await send(fixture.award, sent);
    await list(sent.principal);
    const reads = fixture.proxy.calls.filter(({ operation }) => operation === 'GetItem');
    expect(reads.length).toBeGreaterThanOrEqual(3);
    for (const { body } of reads) expect(body['ConsistentRead']).toBe(true);
  });

  test('a player does not see the badges of another', async () => {
    const sent = request();
    await send(fixture.award, sent);
    expect((await list(`p-${newKey()}`)).json['badges']).toEqual([]);
    const other = { ...sent, principal: `p-${newKey()}` };
    const answered = await send(fixture.award, other);
    expect([answered.status, answered.json['userId']]).toEqual([201, other.principal]);
    expect(answered.headers).not.toHaveProperty('idempotency-replayed');
  });

  test('user t1 with key a:b is not t1:a with b, nor any other cut (C87)', async () => {
    const salt = newKey();
    const cuts = [
      [salt, '1:a:b'],
      [`${salt}:1`, 'a:b'],
      [`${salt}:1:a`, 'b'],
    ] as const;
    for (const [principal, key] of cuts) {
      const answered = await send(fixture.award, { ...request(), principal, key });
      expect([answered.status, answered.json['dataVersion']]).toEqual([201, '1']);
    }
  });

  test('a principal of 1,024 bytes and a key of 255 have room', async () => {
    const principal = `${newKey()}${'ü'.repeat(494)}`;
    const sent = { ...request(), principal, key: newKey().padEnd(255, 'k') };
    expect(Buffer.byteLength(principal)).toBe(1024);
    expect((await send(fixture.award, sent)).status).toBe(201);
    expect((await send(fixture.award, sent)).headers['idempotency-replayed']).toBe('true');
    expect((await fixture.badgesOf(principal)).version).toBe(1);
  });

  test('an If-Match matches the version that was read, or is 412 without a trace (C66)', async () => {
    const { principal } = request();
    const award = (ifMatch: string) =>
      send(fixture.award, { ...request(), principal, headers: { 'If-Match': ifMatch } });
    expect((await award('"1"')).code).toBe('VERSION_MISMATCH');
    expect((await award('"0"')).json['dataVersion']).toBe('1');
    const stale = await award('"0"');
    expect([stale.status, stale.code]).toEqual([412, 'VERSION_MISMATCH']);
    expect((await award('"7", "1"')).json['dataVersion']).toBe('2');
    expect((await award('*')).json['dataVersion']).toBe('3');
    expect((await award('W/"3"')).code).toBe('VERSION_MISMATCH');
    expect((await award('3')).code).toBe('PRECONDITION_MALFORMED');
    expect(await fixture.markersOf(principal)).toHaveLength(3);
    expect((await fixture.badgesOf(principal)).version).toBe(3);
  });

  test.each([[{}], [{ badge: '' }], [{ badge: 7 }], [{ badge: 'x', more: 1 }], [{ badge: 'a\0' }]])(
    'the body %j is refused, and the key goes through with a better body',
    async (body) => {
      const sent = request();
      const refused = await send(fixture.award, { ...sent, body });
      expect([refused.status, refused.code]).toEqual([400, 'BODY_INVALID']);
      expect(await fixture.markersOf(sent.principal)).toEqual([]);
      expect((await send(fixture.award, sent)).status).toBe(201);
    },
  );

  test('a version beyond 2^53 is exact (C64)', async () => {
    const { principal } = request();
    await fixture.table.put({
      pk: { S: `player:${principal}` },
      badges: { L: [] },
      data_version: { N: '9007199254740993' },
      note: { S: 'kept' },
    });
    const awarded = await send(fixture.award, { ...request(), principal });
    expect(awarded.json['dataVersion']).toBe('9007199254740994');
    const item = await fixture.table.item(`player:${principal}`);
    expect(item).toMatchObject({ data_version: { N: '9007199254740994' }, note: { S: 'kept' } });
  });

  test('50 requests at once with one key make one award, and none fails (C16)', async () => {
    const sent = request();
    const answers = await Promise.all(Array.from({ length: 50 }, () => send(fixture.award, sent)));
    const kinds = Map.groupBy(answers, ({ code, headers }) =>
      headers['idempotency-replayed'] ? 'replayed' : (code ?? 'fresh'),
    );
    expect(kinds.get('fresh')).toHaveLength(1);
    expect((kinds.get('replayed')?.length ?? 0) + (kinds.get('ABORTED')?.length ?? 0)).toBe(49);
    expect(new Set(kinds.get('replayed')?.map(({ text }) => text))).toEqual(
      new Set(kinds.get('fresh')?.map(({ text }) => text)),
    );
    expect(await fixture.badgesOf(sent.principal)).toEqual({ badges: ['gold'], version: 1 });
    expect(await fixture.markersOf(sent.principal)).toHaveLength(1);
  });

  test.runIf(inject('redisUrl') !== '')(
    'a replay is read from Redis where there is one, and equals the one from DynamoDB',
    async () => {
      const service = fixture.service({ REDIS_URL: inject('redisUrl') });
      const award = service.mutation(awardBadge);
      const sent = request();
      const first = await send(award, sent);
      const before = fixture.proxy.calls.length;
      const cached = await send(award, sent);
      expect(fixture.proxy.calls).toHaveLength(before);
      const stored = await send(fixture.award, sent);
      expect(fixture.proxy.calls.length).toBeGreaterThan(before);
      expect(cached).toEqual(stored);
      expect(cached.text).toBe(first.text);
    },
  );
});
