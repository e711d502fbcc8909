import { expect } from 'vitest';
import { PROBLEM_KINDS, type ProblemCode } from '../../shared/http/problems.ts';
import type { Answer } from './requests.ts';

/** The answer is the problem of this code, under the status of the contract. */
export function expectProblem({ status, code }: Answer, expected: ProblemCode): void {
  expect({ status, code }).toEqual({ status: PROBLEM_KINDS[expected].status, code: expected });
}
