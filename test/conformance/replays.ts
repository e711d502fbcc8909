/** A retry is answered as the first request was, and another request never is. */
import { expect, test } from 'vitest';
import { CREATED, type Fixture, testWhere } from './fixture.ts';

export function replayTests<Handle>(fixture: Fixture<Handle>): void {
  const { traits, redis, remembers, testHandler, send, newRequest } = fixture;
  const { expectUsedUp, expectRepeat, expectReused, expectKept } = fixture;

  test.each([200, 201, 202, 204])('a %i is repeated as it was (C25)', async (statusCode) => {
    const handler = testHandler(() => ({ ...CREATED, statusCode }));
    const sent = newRequest();
    const first = await send(handler, sent);
    expect(first.status).toBe(statusCode);
    expect(first.text).toBe(CREATED.body);
    expect(first.headers['idempotency-replayed']).toBeUndefined();
    expect(Date.parse(first.headers['idempotency-expires'] as string)).toBeGreaterThan(Date.now());
    expectRepeat(await send(handler, sent), first);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  test('a replay has the headers of the answer, and none of the exchange (C24)', async () => {
    const headers = {
      ...CREATED.headers,
      'Set-Cookie': 'a=b',
      'X-Request-Id': '1',
      'Content-Length': '5',
    };
    const handler = testHandler(() => ({ ...CREATED, headers, cookies: ['c=d'] }));
    const sent = newRequest();
    const first = await send(handler, sent);
    expect(first.headers).toMatchObject({ 'set-cookie': 'a=b', 'x-request-id': '1' });
    const again = await send(handler, { ...sent, headers: { 'Idempotency-Replayed': 'false' } });
    expectRepeat(again, first);
    expect(again.headers).not.toHaveProperty('set-cookie');
    expect(again.headers).not.toHaveProperty('x-request-id');
    expect(again.headers).not.toHaveProperty('content-length');
    if (remembers) expect(again.headers).toMatchObject({ location: '/things/1', etag: '"1"' });
  });

  test('a body over the cap goes out whole, and leaves a tombstone', async () => {
    const handler = testHandler(() => ({ statusCode: 200, body: 'x'.repeat(2000) }), {
      storedBodyBytesMax: 1000,
    });
    const sent = newRequest();
    const first = await send(handler, sent);
    expect(first.status).toBe(200);
    expect(first.text).toHaveLength(2000);
    expectUsedUp(await send(handler, sent));
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  test('another request under the same key never runs, and one of the same meaning is a repeat (C07, C13)', async () => {
    const handler = testHandler(() => CREATED);
    const sent = newRequest({ a: 1, b: [1, 2] });
    const first = await send(handler, sent);
    expectReused(await send(handler, { ...sent, body: { a: 1, b: [2, 1] } }));
    expectReused(await send(handler, { ...sent, query: 'x=1' }));
    expectRepeat(await send(handler, { ...sent, rawBody: '{"b":[1,2],\n"a":1}' }), first);
    const base64 = Buffer.from(JSON.stringify(sent.body)).toString('base64');
    expectRepeat(await send(handler, { ...sent, rawBody: base64, isBase64Encoded: true }), first);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  test('a quoted key is the same key as the bare one (C86)', async () => {
    const handler = testHandler(() => CREATED);
    const sent = newRequest();
    const first = await send(handler, sent);
    expectRepeat(await send(handler, { ...sent, key: `"${sent.key}"` }), first);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  testWhere(traits.identity === 'key', 'a key is used up on every route (C21)', async () => {
    const handler = testHandler(() => CREATED);
    const sent = newRequest();
    await send(handler, sent);
    expectReused(await send(handler, { ...sent, path: '/transfers' }));
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  testWhere(
    traits.identity === 'endpoint and key',
    'a key on another route is another request (C21)',
    async () => {
      const handler = testHandler(() => CREATED);
      const sent = newRequest();
      await send(handler, sent);
      const other = await send(handler, { ...sent, path: '/transfers' });
      expect(other.status).toBe(201);
      expect(other.headers['idempotency-replayed']).toBeUndefined();
      await expectKept(sent, { effects: 2, claims: 2 });
    },
  );

  test('two principals with the same key are two requests (C22)', async () => {
    const handler = testHandler(() => CREATED);
    const [one, two] = [newRequest(), newRequest()];
    expect((await send(handler, one)).status).toBe(201);
    const other = await send(handler, { ...two, key: one.key });
    expect(other.status).toBe(201);
    expect(other.headers['idempotency-replayed']).toBeUndefined();
    for (const each of [one, two]) await expectKept(each, { effects: 1, claims: 1 });
  });

  test('every request says how it ended and which layer decided', async () => {
    const handler = testHandler(() => CREATED);
    const sent = newRequest();
    await send(handler, sent);
    await send(handler, sent);
    const [first, second] = fixture.reports;
    expect(first).toMatchObject({ outcome: 'committed', layer: 'handler', attempts: 1 });
    expect(second).toMatchObject({ outcome: remembers ? 'replayed' : 'already_exists' });
    expect(second?.layer).toBe(redis === 'on' ? 'L1' : 'L2');
    expect(JSON.stringify(fixture.reports)).not.toContain(sent.key);
  });
}
