import { describe, expect, test } from 'vitest';
import type { Setback } from '../../shared/core/contract.ts';
import { problemOf } from '../../shared/http/outcome-problem.ts';
import { type HttpResponse, PROBLEM_KINDS, problemResponse } from '../../shared/http/problems.ts';

type Told = Parameters<typeof problemOf>[0];

const cause = new Error('inside');
const all: [string, Told, HttpResponse['statusCode'], string][] = [
  ['already-exists', { kind: 'already-exists' }, 409, 'ALREADY_EXISTS'],
  ['in-flight', { kind: 'in-flight' }, 409, 'ABORTED'],
  ['retry after a conflict', { kind: 'retry', because: 'conflict', cause }, 409, 'CONTENTION'],
  ['retry after a loss', { kind: 'retry', because: 'connection', cause }, 503, 'UNAVAILABLE'],
  ['contention', { kind: 'contention', cause }, 409, 'CONTENTION'],
  ['unavailable', { kind: 'unavailable', cause }, 503, 'UNAVAILABLE'],
  ['late', { kind: 'late' }, 503, 'UNAVAILABLE'],
  ['unknown-outcome', { kind: 'unknown-outcome', cause }, 503, 'OUTCOME_UNKNOWN'],
];

const answerOf = (setback: Told, isUnprotected = false) => {
  const response = problemResponse(problemOf(setback, '/players/me', isUnprotected));
  return { ...response, json: JSON.parse(response.body as string) };
};

describe.each(all)('the setback %s', (_, setback, status, code) => {
  test('it is answered with its status and code', () => {
    const { statusCode, json } = answerOf(setback);
    expect([statusCode, json.code]).toEqual([status, code]);
  });

  test('it has a Retry-After exactly where sending the same request again makes sense', () => {
    const { headers, json } = answerOf(setback);
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
  const setback = {
    kind: 'in-flight',
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
  };
  expect(answerOf(setback as Setback as Told).headers?.['retry-after']).toBe(expected);
});

test('a key that is used up points to the state that alone decides', () => {
  const { headers, json } = answerOf({ kind: 'already-exists' });
  expect(headers?.['link']).toBe('</players/me>; rel="related"');
  expect(json.state).toBe('/players/me');
  const nowhere = problemResponse(problemOf({ kind: 'already-exists' }, undefined));
  expect(nowhere.headers).not.toHaveProperty('link');
  expect(nowhere.body).not.toContain('"state"');
});

test('an unknown outcome without a key is not to be sent again', () => {
  const { statusCode, headers, json } = answerOf({ kind: 'unknown-outcome', cause }, true);
  expect([statusCode, json.code, json.retryable]).toEqual([503, 'OUTCOME_UNKNOWN', false]);
  expect(headers).not.toHaveProperty('retry-after');
});
