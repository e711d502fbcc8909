/** What fails has no effect and can be sent again; what is refused is kept. */
import { expect, test } from 'vitest';
import { INSUFFICIENT_COINS } from '../../functions/problems.ts';
import { Problem } from '../../shared/index.ts';
import { expectProblem } from '../support/expect-problem.ts';
import { CREATED, type Fixture } from './fixture.ts';

const NOTHING = { effects: 0, claims: 0 };

export function failureTests<Handle>(fixture: Fixture<Handle>): void {
  const { testHandler, send, newRequest, expectRepeat, expectKept } = fixture;

  test('work that has thrown is undone and not kept, so that the retry runs (C30, C68)', async () => {
    let calls = 0;
    const handler = testHandler(() => {
      calls++;
      if (calls === 1) throw new Error('boom');
      if (calls === 2) throw new Problem('NOT_FOUND', 'gone');
      return CREATED;
    });
    const sent = newRequest();
    const broken = await send(handler, sent);
    expectProblem(broken, 'INTERNAL');
    expect(broken.text).not.toContain('boom');
    await expectKept(sent, NOTHING);
    expectProblem(await send(handler, sent), 'NOT_FOUND');
    await expectKept(sent, NOTHING);
    expect((await send(handler, sent)).status).toBe(201);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  test('a returned refusal is kept and replayed, and its writes are undone', async () => {
    let calls = 0;
    const handler = testHandler(() => {
      calls++;
      return new Problem(INSUFFICIENT_COINS, `try ${calls}`);
    });
    const sent = newRequest();
    const first = await send(handler, sent);
    expect([first.status, first.code]).toEqual([402, 'INSUFFICIENT_COINS']);
    await expectKept(sent, { effects: 0, claims: 1 });
    expectRepeat(await send(handler, sent), first);
    await expectKept(sent, { effects: 0, claims: 1 });
  });

  test('a returned 5xx goes out as it is, is undone and not kept', async () => {
    let calls = 0;
    const handler = testHandler(() => {
      calls++;
      return calls === 1 ? { statusCode: 502, body: 'upstream' } : CREATED;
    });
    const sent = newRequest();
    const first = await send(handler, sent);
    expect([first.status, first.text]).toEqual([502, 'upstream']);
    await expectKept(sent, NOTHING);
    expect((await send(handler, sent)).status).toBe(201);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  test('a response that cannot be kept fails loudly, and takes no effect (C80)', async () => {
    const handler = testHandler(() => ({ statusCode: 200, body: new ReadableStream() }) as never);
    const sent = newRequest();
    expectProblem(await send(handler, sent), 'INTERNAL');
    await expectKept(sent, NOTHING);
  });

  test('a store that cannot be reached is 503 without an effect, and works again when it can (C20, C45)', async () => {
    const handler = testHandler(() => CREATED);
    const sent = newRequest();
    await fixture.store.breakStore();
    const answer = await send(handler, sent);
    expectProblem(answer, 'UNAVAILABLE');
    expect(answer.headers['retry-after']).toMatch(/^[12]$/);
    await fixture.store.mendStore();
    expect((await send(handler, sent)).status).toBe(201);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  test('work that outlasts the deadline is cut off without effect or claim, and the retry runs (C83)', async () => {
    let isSlow = true;
    const gate = Promise.withResolvers<void>();
    const handler = testHandler(async () => {
      if (isSlow) await gate.promise;
      return CREATED;
    });
    // The claim is given back on another connection, which is not to be made first.
    const quick = testHandler(() => CREATED);
    await Promise.all([send(quick, newRequest()), send(quick, newRequest())]);
    const sent = newRequest();
    expectProblem(await send(handler, sent, 2000), 'UNAVAILABLE');
    isSlow = false;
    gate.resolve();
    await expectKept(sent, NOTHING);
    expect((await send(handler, sent)).status).toBe(201);
    await expectKept(sent, { effects: 1, claims: 1 });
  });
}
