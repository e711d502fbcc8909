import httpJsonBodyParser from '@middy/http-json-body-parser';
import { describe, expect, test } from 'vitest';
import {
  defineProblems,
  errorResponse,
  type HttpResponse,
  PROBLEM_KINDS,
  Problem,
  type ProblemCode,
  problemResponse,
} from '../../shared/http/problems.ts';
import { problemOutcome } from '../../shared/lambda/reports.ts';

/** The contract's table: what a client may rely on. */
const CONTRACT: Record<ProblemCode, { status: number; retryable: boolean }> = {
  KEY_REQUIRED: { status: 400, retryable: false },
  KEY_MALFORMED: { status: 400, retryable: false },
  BODY_INVALID: { status: 400, retryable: false },
  PRECONDITION_MALFORMED: { status: 400, retryable: false },
  UNAUTHENTICATED: { status: 401, retryable: false },
  NOT_FOUND: { status: 404, retryable: false },
  ABORTED: { status: 409, retryable: true },
  ALREADY_EXISTS: { status: 409, retryable: false },
  CONTENTION: { status: 409, retryable: true },
  VERSION_MISMATCH: { status: 412, retryable: false },
  PAYLOAD_TOO_LARGE: { status: 413, retryable: false },
  UNSUPPORTED_MEDIA_TYPE: { status: 415, retryable: false },
  KEY_REUSED: { status: 422, retryable: false },
  INTERNAL: { status: 500, retryable: false },
  OUTCOME_UNKNOWN: { status: 503, retryable: true },
  UNAVAILABLE: { status: 503, retryable: true },
};

const codes = Object.keys(PROBLEM_KINDS) as ProblemCode[];
const bodyOf = (response: HttpResponse) => JSON.parse(response.body as string);
const summary = (response: HttpResponse) => [response.statusCode, bodyOf(response).code];

test('every code is in the contract, and every code of the contract exists', () => {
  expect(codes.toSorted()).toEqual(Object.keys(CONTRACT).toSorted());
});

test('still running, used up and too many writers are three codes of one status (C28)', () => {
  const conflicts = codes.filter((code) => PROBLEM_KINDS[code].status === 409);
  expect(conflicts.toSorted()).toEqual(['ABORTED', 'ALREADY_EXISTS', 'CONTENTION']);
});

describe.each(codes)('the problem %s', (code) => {
  const response = problemResponse(new Problem(code, 'Because.'));
  const { status, retryable } = CONTRACT[code];

  test('it has its status, in the line and in the body, and says whether to send again', () => {
    expect(response.statusCode).toBe(status);
    expect(bodyOf(response)).toEqual({
      type: `https://backstop.example/problems/${code.toLowerCase().replaceAll('_', '-')}`,
      title: expect.stringMatching(/\w/),
      status,
      detail: 'Because.',
      code,
      retryable,
    });
  });

  test('it is problem+json, and nothing that a cache keeps', () => {
    expect(response.headers).toEqual({
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
    });
  });
});

test('a problem carries its own headers, members and base URL', () => {
  const problem = new Problem('ALREADY_EXISTS', 'Used.', {
    headers: { link: '</players/me>; rel="related"' },
    members: { state: '/players/me' },
  });
  const response = problemResponse(problem, 'https://other.example/p#');
  expect(response.headers?.['link']).toBe('</players/me>; rel="related"');
  expect(bodyOf(response)).toMatchObject({
    type: 'https://other.example/p#already-exists',
    state: '/players/me',
  });
});

test('Retry-After is whole seconds, as text', () => {
  const problem = new Problem('ABORTED', 'Later.', { retryAfterSeconds: 2 });
  expect(problemResponse(problem).headers?.['retry-after']).toBe('2');
});

test('an unknown outcome without a key is not retryable, whatever its code says', () => {
  const problem = new Problem('OUTCOME_UNKNOWN', 'Lost.', { retryable: false });
  expect(bodyOf(problemResponse(problem)).retryable).toBe(false);
});

describe("problems of a service's own", () => {
  const kind = { status: 409, title: 'Out of stock', retryable: true };
  const { OUT_OF_STOCK } = defineProblems({ OUT_OF_STOCK: kind });

  test('defineProblems gives a problem that is answered as one of the library', () => {
    const problem = new Problem(OUT_OF_STOCK, 'None left.', {
      retryAfterSeconds: 1,
      members: { left: 0 },
    });
    const response = problemResponse(problem);
    expect(response.headers).toMatchObject({
      'content-type': 'application/problem+json',
      'retry-after': '1',
    });
    expect(bodyOf(response)).toEqual({
      type: 'https://backstop.example/problems/out-of-stock',
      title: 'Out of stock',
      status: 409,
      detail: 'None left.',
      code: 'OUT_OF_STOCK',
      retryable: true,
      left: 0,
    });
    expect([problem.statusCode, problem.message]).toEqual([409, 'OUT_OF_STOCK: None left.']);
  });

  test('defineProblems gives an outcome that is none of the library', () => {
    expect(problemOutcome(new Problem(OUT_OF_STOCK, ''))).toBe('own_out_of_stock');
    const { FRESH } = defineProblems({ FRESH: kind });
    expect(problemOutcome(new Problem(FRESH, ''))).toBe('own_fresh');
    expect(problemOutcome(new Problem('ABORTED', ''))).toBe('aborted');
  });

  test.each<[string, object, RegExp]>([
    ['a code of the library', { ABORTED: kind }, /ABORTED: the library has this code/],
    ['a code in small letters', { outOfStock: kind }, /outOfStock: a code is in capitals/],
    ['a code of other middlewares', { HTTP_409: kind }, /HTTP_409: .*other middlewares/],
    ['a success', { SOLD: { ...kind, status: 200 } }, /SOLD: status must be .* 400 to 499/],
    ['a failure', { BROKEN: { ...kind, status: 503 } }, /BROKEN: status must be .*throw an Error/],
    ['KEY_REUSED by its status', { ODD: { ...kind, status: 422 } }, /means KEY_REUSED/],
    ['a status that is text', { ODD: { ...kind, status: '409' } }, /ODD: status must be/],
    ['no title', { ODD: { ...kind, title: '' } }, /ODD: title must be/],
    ['no retryable', { ODD: { status: 409, title: 'Odd' } }, /ODD: retryable must be/],
    ['a member that nobody reads', { ODD: { ...kind, code: 'X' } }, /ODD: there is no code/],
  ])('defineProblems refuses %s', (_, kinds, why) => {
    expect(() => defineProblems(kinds as never)).toThrow(TypeError);
    expect(() => defineProblems(kinds as never)).toThrow(why);
  });

  test('Problem takes what defineProblems has made, and types and constructor refuse the rest', () => {
    // @ts-expect-error: it is no code of the library.
    expect(() => new Problem('OUT_OF_STOCK', '')).toThrow(/make one of your own/);
    // @ts-expect-error: nobody has judged it.
    expect(() => new Problem({ code: 'OUT_OF_STOCK', ...kind }, '')).toThrow(
      /make one of your own/,
    );
    // @ts-expect-error: the library has this code.
    expect(() => defineProblems({ NOT_FOUND: kind })).toThrow();
    // @ts-expect-error: only what was defined is there.
    expect(defineProblems({ OUT_OF_STOCK: kind }).SOLD_OUT).toBeUndefined();
  });
});

describe('an HTTP error of another middleware', () => {
  const foreign = (statusCode: unknown, message = 'Refused') =>
    errorResponse(Object.assign(new Error(message), { statusCode }));

  test('a 401 stays a 401 (C09)', () => {
    expect(summary(foreign(401))).toEqual([401, 'UNAUTHENTICATED']);
  });

  test.each([
    [400, 'BODY_INVALID'],
    [404, 'NOT_FOUND'],
    [413, 'PAYLOAD_TOO_LARGE'],
    [415, 'UNSUPPORTED_MEDIA_TYPE'],
    [402, 'HTTP_402'],
    [403, 'HTTP_403'],
    [429, 'HTTP_429'],
    // Not ABORTED, ALREADY_EXISTS or CONTENTION: those say something of the key.
    [409, 'HTTP_409'],
  ])('an error of status %i keeps it', (status, code) => {
    expect(summary(foreign(status))).toEqual([status, code]);
    expect(bodyOf(foreign(status, 'Why'))).toMatchObject({
      status,
      detail: 'Why',
      retryable: false,
    });
    expect(foreign(status).headers?.['content-type']).toBe('application/problem+json');
  });

  test('an error of status 422 is 400, since 422 means KEY_REUSED here', () => {
    expect(summary(foreign(422))).toEqual([400, 'BODY_INVALID']);
  });

  test('an error of the parser keeps its status', async () => {
    const { before } = httpJsonBodyParser();
    const parse = async (event: object) => {
      try {
        await before?.({ event } as never);
      } catch (error) {
        return summary(errorResponse(error));
      }
      return undefined;
    };
    const headers = { 'content-type': 'application/json' };
    expect(await parse({ headers, body: '{' })).toEqual([400, 'BODY_INVALID']);
    expect(await parse({ headers })).toEqual([400, 'BODY_INVALID']);
    expect(await parse({ headers, body: '{"__proto__":1}' })).toEqual([400, 'BODY_INVALID']);
    expect(await parse({ headers: {}, body: '{}' })).toEqual([415, 'UNSUPPORTED_MEDIA_TYPE']);
    expect(await parse({ headers, body: '{}' })).toBeUndefined();
  });
});

describe('any other error is INTERNAL and leaks nothing', () => {
  const secret = 'postgres://user:secret@10.0.0.1/db';
  test.each<[string, unknown]>([
    ['an Error', new Error(secret)],
    ['an Error with a cause', new Error('x', { cause: secret })],
    ['a failure of status 500', Object.assign(new Error(secret), { statusCode: 500 })],
    ['a failure of status 503', Object.assign(new Error(secret), { statusCode: 503 })],
    ['a success that was thrown', Object.assign(new Error(secret), { statusCode: 200 })],
    ['a status that is text', Object.assign(new Error(secret), { statusCode: '401' })],
    ['a status that is no number', Object.assign(new Error(secret), { statusCode: Number.NaN })],
    ['a status between two', Object.assign(new Error(secret), { statusCode: 400.5 })],
    ['a string', secret],
    ['an object', { secret }],
    ['null', null],
    ['undefined', undefined],
  ])('it leaks nothing when it is %s', (_, error) => {
    const response = errorResponse(error);
    expect(summary(response)).toEqual([500, 'INTERNAL']);
    expect(JSON.stringify(response)).not.toContain('secret');
    expect(response.headers).not.toHaveProperty('retry-after');
  });

  test('a problem does not leak its cause either', () => {
    const response = errorResponse(
      new Problem('UNAVAILABLE', 'Down.', { cause: new Error(secret) }),
    );
    expect(summary(response)).toEqual([503, 'UNAVAILABLE']);
    expect(JSON.stringify(response)).not.toContain('secret');
  });
});
