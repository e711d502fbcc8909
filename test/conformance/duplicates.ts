/** Requests under one key at the same time: one takes effect. */
import { expect, test } from 'vitest';
import { expectProblem } from '../support/expect-problem.ts';
import type { Answer } from '../support/requests.ts';
import { CREATED, type Fixture, testWhere } from './fixture.ts';

export function duplicateTests<Handle>(fixture: Fixture<Handle>): void {
  const { traits, redis, testHandler, stackAround, send, newRequest } = fixture;
  const { expectRepeat, expectKept } = fixture;

  /** Redis rejects before a store that would let the duplicate wait is asked. */
  const isRejectedByRedis = traits.duplicateInFlight === 'waits' && redis === 'on';
  const duplicate = isRejectedByRedis ? 'rejected' : traits.duplicateInFlight;

  /** A request whose work has begun, and ends once it is let go. */
  async function runningRequest() {
    const isInside = Promise.withResolvers<void>();
    const gate = Promise.withResolvers<void>();
    const handler = testHandler(async () => {
      isInside.resolve();
      await gate.promise;
      return CREATED;
    });
    const sent = newRequest();
    const running = send(handler, sent);
    await isInside.promise;
    return { handler, sent, running, letGo: () => gate.resolve() };
  }

  testWhere(
    duplicate === 'rejected',
    'a duplicate of a running request is ABORTED, and another payload KEY_REUSED (C01, C15, C82)',
    async () => {
      const { handler, sent, running, letGo } = await runningRequest();
      expectProblem(await send(handler, { ...sent, body: { amount: 2 } }), 'KEY_REUSED');
      for (const busy of [await send(handler, sent), await send(handler, sent)]) {
        expectProblem(busy, 'ABORTED');
        expect(busy.headers['retry-after']).toMatch(/^[12]$/);
      }
      letGo();
      const first = await running;
      expect(first.status).toBe(201);
      expectRepeat(await send(handler, sent), first);
      await expectKept(sent, { effects: 1, claims: 1 });
    },
  );

  testWhere(
    duplicate === 'waits',
    'a duplicate of a running request waits for it, and is then answered as a retry (C01, C82)',
    async () => {
      const { handler, sent, running, letGo } = await runningRequest();
      const waiting = send(handler, sent);
      await fixture.store.duplicateArrived();
      letGo();
      const first = await running;
      expect(first.status).toBe(201);
      expectRepeat(await waiting, first);
      expectRepeat(await send(handler, sent), first);
      await expectKept(sent, { effects: 1, claims: 1 });
    },
  );

  testWhere(
    duplicate === 'races',
    'a duplicate of a running request runs as well, and the one that commits answers both (C01, C82)',
    async () => {
      const { handler, sent, running, letGo } = await runningRequest();
      const racing = send(handler, sent);
      await fixture.store.duplicateArrived();
      letGo();
      // Which of them commits is open.
      const both = await Promise.all([running, racing]);
      const isReplay = ({ headers }: Answer) => 'idempotency-replayed' in headers;
      const first = both.find((answer) => !isReplay(answer)) as Answer;
      expect(first.status).toBe(201);
      expectRepeat(both.find(isReplay) as Answer, first);
      expectRepeat(await send(handler, sent), first);
      await expectKept(sent, { effects: 1, claims: 1 });
    },
  );

  test('50 requests at once with one key have one effect, and none fails (C16)', async () => {
    const handler = testHandler(() => CREATED);
    const sent = newRequest();
    const answers = await Promise.all(Array.from({ length: 50 }, () => send(handler, sent)));
    const kinds = answers.map(({ code, status, headers }) =>
      headers['idempotency-replayed'] ? 'replayed' : (code ?? status),
    );
    expect(kinds.filter((kind) => kind === 201)).toHaveLength(1);
    expect(
      kinds.filter((kind) => !['replayed', 201, 'ABORTED', 'ALREADY_EXISTS'].includes(kind)),
    ).toEqual([]);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  test('parallel requests in one process share nothing (C107)', async () => {
    const handler = stackAround(({ once, principal }) =>
      once(fixture.store.work(principal, () => ({ statusCode: 200, body: principal }))),
    );
    const all = Array.from({ length: 20 }, () => newRequest());
    const answers = await Promise.all(all.map((sent) => send(handler, sent)));
    expect(answers.map(({ text }) => text)).toEqual(all.map(({ principal }) => principal));
  });
}
