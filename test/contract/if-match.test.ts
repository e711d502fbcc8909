/** C128: a condition that the client asks for is judged, inside the work, or refused; never ignored. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod/mini';
import { createPurchase } from '../../functions/purchases/create-purchase.ts';
import { playerOf } from '../support/database.ts';
import { httpEvent, newKey } from '../support/requests.ts';
import { expectNoTrace, expectRefusal, type Fixture, openFixture, sendEvent } from './support.ts';

let fixture: Fixture;
beforeAll(async () => {
  fixture = await openFixture();
});
afterAll(() => fixture.close());

const MUTATIONS = [
  {
    route: 'spend-coins',
    handlerOf: (fixture: Fixture) => fixture.spend,
    path: '/players/me/coins/spend',
    body: (_to: string) => ({ amount: 10 }) as object,
  },
  {
    route: 'transfer-coins',
    handlerOf: (fixture: Fixture) => fixture.transfer,
    path: '/transfers',
    body: (to: string) => ({ to, amount: 10 }) as object,
  },
  {
    route: 'create-purchase',
    handlerOf: (fixture: Fixture) => fixture.service.recordMutation(createPurchase),
    path: '/purchases',
    body: (_to: string) => ({ sku: 'potion', quantity: 2 }) as object,
  },
];

describe.each(MUTATIONS)('the route $route', ({ handlerOf, path, body }) => {
  async function scene() {
    const [principal, to] = [await fixture.newPlayer(), await fixture.newPlayer()];
    const handler = handlerOf(fixture);
    const send = (ifMatch: string, key = 'K1') =>
      sendEvent(
        handler,
        httpEvent({ path, principal, key, body: body(to), headers: { 'if-match': ifMatch } }),
      );
    return {
      principal,
      to,
      send,
      coins: async () => (await playerOf(fixture.db, principal)).coins,
    };
  }

  test('an older version is 412, nothing is done and the key stays unused (C128)', async () => {
    const { principal, to, send, coins } = await scene();
    expectRefusal(await send('"7"'), 412, 'VERSION_MISMATCH');
    expectRefusal(await send('W/"1"'), 412, 'VERSION_MISMATCH');
    await expectNoTrace(fixture, [principal, to]);
    expect((await send('"7", "1"')).status).toBeLessThan(300);
    expect(await coins()).toBe(990);
  });

  test('a retry meets its replay, and no 412 over the version that it made itself (C128)', async () => {
    const { send, coins } = await scene();
    const first = await send('"1"');
    const again = await send('"1"');
    expect(first.status).toBeLessThan(300);
    expect([again.status, again.text]).toEqual([first.status, first.text]);
    expect(again.headers['idempotency-replayed']).toBe('true');
    expectRefusal(await send('"1"', 'K2'), 412, 'VERSION_MISMATCH');
    expect(await coins()).toBe(990);
  });

  test('one of two requests that saw the same version goes through (C128)', async () => {
    const { send, coins } = await scene();
    const answers = await Promise.all([send('"1"', 'K1'), send('"1"', 'K2')]);
    const codes = answers.map(({ code }) => code ?? 'done').sort();
    expect(codes).toEqual(['VERSION_MISMATCH', 'done']);
    expect(await coins()).toBe(990);
  });

  test('a star matches any version, and what is no entity tag is refused (C128)', async () => {
    const { principal, to, send, coins } = await scene();
    expectRefusal(await send('7'), 400, 'PRECONDITION_MALFORMED');
    await expectNoTrace(fixture, [principal, to]);
    expect((await send('*')).status).toBeLessThan(300);
    expect(await coins()).toBe(990);
  });
});

test('a mutation that judges no If-Match refuses it, and leaves the key unused (C128)', async () => {
  let runs = 0;
  const handler = fixture.service.mutation({
    name: 'without-version',
    body: z.strictObject({}),
    stateUrl: '/',
    run: ({ once }) => {
      runs += 1;
      return once(async () => ({ statusCode: 200, body: 'done' }));
    },
  });
  const principal = await fixture.newPlayer();
  const sent = { principal, key: newKey(), body: {} };
  const refused = await sendEvent(handler, httpEvent({ ...sent, headers: { 'If-Match': '"1"' } }));
  expectRefusal(refused, 400, 'PRECONDITION_MALFORMED');
  expect(refused.json['detail']).toContain('has a version');
  expect(runs).toBe(0);
  await expectNoTrace(fixture, [principal]);
  expect((await sendEvent(handler, httpEvent(sent))).text).toBe('done');
});
