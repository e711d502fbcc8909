/** The one place that reads what DynamoDB and the SDK say when something fails. */
import type { CancellationReason } from '@aws-sdk/client-dynamodb';
import type { Setback } from '../core/contract.ts';
import { problemOf } from '../http/outcome-problem.ts';

interface SdkError {
  readonly name?: string;
  /** Whose fault it is; only an answer of DynamoDB's has it. */
  readonly $fault?: 'client' | 'server';
  /** Of an error of Node's: what was being done. */
  readonly syscall?: string;
}

/** Refusals that pass: asked again later, the same request may be taken. */
const FOR_NOW = new Set([
  'ThrottlingException',
  'ProvisionedThroughputExceededException',
  'RequestLimitExceeded',
  // The table is being made, as at a first `npm start`.
  'ResourceNotFoundException',
]);

/** An answer that refuses, or a connection that never came about: this send wrote nothing. */
export function isNo(error: unknown): boolean {
  const { name, $fault, syscall } = (error ?? {}) as SdkError;
  if (syscall === 'connect' || syscall === 'getaddrinfo') return true;
  // It refuses this send because an earlier one, under the same token, is still at work.
  return $fault === 'client' && name !== 'TransactionInProgressException';
}

/** Why a call failed that has written nothing. */
export function setbackOf(error: unknown): Setback {
  const { name = '', $fault } = (error ?? {}) as SdkError;
  const isOurMistake = $fault === 'client' && !FOR_NOW.has(name);
  return isOurMistake ? { kind: 'threw', error } : unavailable(error);
}

export function unavailable(cause: unknown) {
  return { kind: 'unavailable', cause, what: 'DynamoDB' } as const;
}

/** The same, for whoever has nothing to commit. */
export function asProblem(error: unknown): unknown {
  const setback = setbackOf(error);
  return setback.kind === 'unavailable' ? problemOf(setback, undefined) : error;
}

/**
 * Why the items of the work were refused. One condition that failed means that somebody
 * else has won: the work reads again. Codes: `ConditionalCheckFailed`,
 * `TransactionConflict`, `ThrottlingError`, `ProvisionedThroughputExceeded`,
 * `ItemCollectionSizeLimitExceeded`, `ValidationError`, `None`.
 */
export function setbackOfReasons(reasons: readonly CancellationReason[], cause: unknown): Setback {
  const codes = new Set(reasons.map(({ Code }) => Code).filter((code) => code !== 'None'));
  if (codes.has('ConditionalCheckFailed') || codes.has('TransactionConflict')) {
    return { kind: 'retry', because: 'conflict', cause };
  }
  const isForNow = codes.has('ThrottlingError') || codes.has('ProvisionedThroughputExceeded');
  // Without a reason it is as good as throttled: nothing was written, and nobody says why.
  if (isForNow || codes.size === 0) return { kind: 'retry', because: 'connection', cause };
  return { kind: 'threw', error: cause };
}
