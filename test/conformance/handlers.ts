/** What a handler and the middlewares around it may do, and what never changes what was committed. */
import { expect, test } from 'vitest';
import { expectProblem } from '../support/expect-problem.ts';
import type { Answer } from '../support/requests.ts';
import { CREATED, type Fixture, type Middleware } from './fixture.ts';

export function handlerTests<Handle>(fixture: Fixture<Handle>): void {
  const { redis, remembers, testHandler, stackAround, send, newRequest } = fixture;
  const { expectRepeat, expectKept } = fixture;

  test('a second call of once does nothing, and the first one is the answer', async () => {
    const handler = stackAround(async ({ once, principal }) => {
      const work = fixture.store.work(principal, () => CREATED);
      await once(work);
      return once(work);
    });
    const sent = newRequest();
    expect((await send(handler, sent)).status).toBe(201);
    await expectKept(sent, { effects: 1, claims: 1 });
    expect(fixture.outcomes).toContain('called_twice');
  });

  test('the response of once is the answer, whatever the handler returns instead', async () => {
    const handler = stackAround(async ({ once, principal }) => {
      await once(fixture.store.work(principal, () => CREATED));
      return { statusCode: 200, body: 'something else' };
    });
    const answer = await send(handler, newRequest());
    expect([answer.status, answer.text]).toEqual([201, CREATED.body]);
    expect(fixture.outcomes).toContain('response_changed');
  });

  test('success without once is a failure', async () => {
    const handler = stackAround(async () => CREATED);
    expectProblem(await send(handler, newRequest()), 'INTERNAL');
    expect(fixture.outcomes).toContain('unprotected');
  });

  test.each([
    ['the handler', undefined],
    [
      'an outer after',
      {
        after: () => {
          throw new Error('late');
        },
      },
    ],
    [
      'an outer after, and an onError that hides it',
      {
        after: () => {
          throw new Error('late');
        },
        onError: (request: { response: unknown }) => {
          request.response = { statusCode: 500 };
        },
      },
    ],
  ])('a response of once stays final when %s throws (C08)', async (_who, outer) => {
    const handler = stackAround(
      async ({ once, principal }) => {
        const response = await once(fixture.store.work(principal, () => CREATED));
        if (!outer) throw new Error('late');
        return response;
      },
      outer ? { outer: outer as Middleware<Handle> } : {},
    );
    const sent = newRequest();
    const first = await send(handler, sent);
    expect([first.status, first.text]).toEqual([201, CREATED.body]);
    const again = await send(handler, sent);
    if (remembers) expectRepeat(again, first);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  test('a hook that makes a success of a failure does not hide it (C79)', async () => {
    const outer = {
      onError: (request: { response: unknown }) => {
        request.response = { statusCode: 200 };
      },
    };
    let calls = 0;
    const handler = testHandler(
      () => {
        calls++;
        if (calls === 1) throw new Error('boom');
        return CREATED;
      },
      { outer: outer as Middleware<Handle> },
    );
    const sent = newRequest();
    expect((await send(handler, sent)).status).toBe(500);
    expect((await send(handler, sent)).status).toBe(201);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  test('an error that an earlier middleware throws goes out, and nothing is claimed (C09)', async () => {
    const denied = Object.assign(new Error('denied'), { statusCode: 401, expose: true });
    const outer = {
      before: () => {
        throw denied;
      },
    };
    const handler = testHandler(() => CREATED, { outer: outer as Middleware<Handle> });
    const sent = newRequest();
    expectProblem(await send(handler, sent), 'UNAUTHENTICATED');
    await expectKept(sent, { effects: 0, claims: 0 });
  });

  test('a change that the handler makes to the event changes nothing (C04)', async () => {
    const handler = stackAround(({ once, principal }, event) => {
      Object.assign(event, { body: 'changed', headers: {}, rawPath: '/elsewhere' });
      return once(fixture.store.work(principal, () => CREATED));
    });
    const sent = newRequest();
    const first = await send(handler, sent);
    expectRepeatIfKept(await send(handler, sent), first);
    await expectKept(sent, { effects: 1, claims: 1 });
  });

  /** For a handler in which Redis does not die. */
  function expectRepeatIfKept(answer: Answer, first: Answer): void {
    if (redis === 'dies' && answer.status === 201) expect(answer.text).toBe(first.text);
    else expectRepeat(answer, first);
  }

  test('a request without a key is refused where one is required (C06)', async () => {
    const handler = testHandler(() => CREATED);
    const sent = { ...newRequest(), key: null };
    expectProblem(await send(handler, sent), 'KEY_REQUIRED');
    await expectKept(sent, { effects: 0, claims: 0 });
  });

  test('a request without a key runs each time where keys are optional (C06)', async () => {
    const handler = testHandler(() => CREATED, { keyMode: 'optional' });
    const sent = { ...newRequest(), key: null };
    for (const answer of [await send(handler, sent), await send(handler, sent)]) {
      expect(answer.status).toBe(201);
      expect(answer.headers['idempotency-expires']).toBeUndefined();
    }
    await expectKept(sent, { effects: 2, claims: 0 });
    expect(fixture.outcomes.filter((outcome) => outcome === 'key_empty')).toHaveLength(2);
  });

  test('a request without a principal does not reach the store', async () => {
    const handler = testHandler(() => CREATED);
    expectProblem(
      await send(handler, { ...newRequest(), principal: undefined }),
      'UNAUTHENTICATED',
    );
  });
}
