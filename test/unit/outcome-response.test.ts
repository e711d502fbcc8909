import { describe, expect, test } from 'vitest';
import { DeadlineError } from '../../shared/core/outcome.ts';
import { problemOf } from '../../shared/http/outcome-response.ts';
import { type HttpResponse, PROBLEM_KINDS, problemResponse } from '../../shared/http/problems.ts';

type Told = Parameters<typeof problemOf>[0];

const cause = new Error('inside');
const late = new DeadlineError();
const all: [string, Told, HttpResponse['statusCode'], string][] = [
  ['a used key', { kind: 'rejected', code: 'ALREADY_EXISTS' }, 409, 'ALREADY_EXISTS'],
  ['another request', { kind: 'rejected', code: 'KEY_REUSED' }, 422, 'KEY_REUSED'],
  ['a running request', { kind: 'rejected', code: 'ABORTED' }, 409, 'ABORTED'],
  ['a conflict', { kind: 'retryable', reason: 'conflict', cause }, 409, 'CONTENTION'],
  ['a lost connection', { kind: 'retryable', reason: 'connection', cause }, 503, 'UNAVAILABLE'],
  ['a commit of another', { kind: 'retryable', reason: 'in-flight', cause }, 409, 'ABORTED'],
  ['locked rows', { kind: 'rejected', code: 'CONTENTION', cause }, 409, 'CONTENTION'],
  ['a store that is away', { kind: 'rejected', code: 'UNAVAILABLE', cause }, 503, 'UNAVAILABLE'],
  ['the deadline', { kind: 'rejected', code: 'UNAVAILABLE', cause: late }, 503, 'UNAVAILABLE'],
  ['a lost COMMIT', { kind: 'unknown', cause }, 503, 'OUTCOME_UNKNOWN'],
];

const answerOf = (outcome: Told, isUnprotected = false) => {
  const response = problemResponse(problemOf(outcome, { stateUrl: '/players/me', isUnprotected }));
  return { ...response, json: JSON.parse(response.body as string) };
};

describe.each(all)('the outcome of %s', (_, outcome, status, code) => {
  test('it is answered with its status and code', () => {
    const { statusCode, json } = answerOf(outcome);
    expect([statusCode, json.code]).toEqual([status, code]);
  });

  test('it has a Retry-After exactly where sending the same request again makes sense', () => {
    const { headers, json } = answerOf(outcome);
    expect(json.retryable).toBe(PROBLEM_KINDS[json.code as keyof typeof PROBLEM_KINDS].retryable);
    if (json.retryable) expect(headers?.['retry-after']).toMatch(/^[12]$/);
    else expect(headers).not.toHaveProperty('retry-after');
  });
});

test.each([
  [undefined, '1'],
  [-3, '1'],
  [0, '1'],
  [1, '1'],
  [2, '2'],
  [28, '2'],
])('with %s s of the lease left, the Retry-After is %s', (retryAfterSeconds, expected) => {
  const known = retryAfterSeconds !== undefined && { retryAfterSeconds };
  const { headers } = answerOf({ kind: 'rejected', code: 'ABORTED', ...known });
  expect(headers?.['retry-after']).toBe(expected);
});

test('a key that is used up points to the state that alone decides', () => {
  const { headers, json } = answerOf({ kind: 'rejected', code: 'ALREADY_EXISTS' });
  expect(headers?.['link']).toBe('</players/me>; rel="related"');
  expect(json.state).toBe('/players/me');
  const nowhere = problemResponse(problemOf({ kind: 'rejected', code: 'ALREADY_EXISTS' }, {}));
  expect(nowhere.headers).not.toHaveProperty('link');
  expect(nowhere.body).not.toContain('"state"');
});

test('an unknown outcome without a key is not to be sent again', () => {
  const { statusCode, headers, json } = answerOf({ kind: 'unknown', cause }, true);
  expect([statusCode, json.code, json.retryable]).toEqual([503, 'OUTCOME_UNKNOWN', false]);
  expect(headers).not.toHaveProperty('retry-after');
});
