/** The one place where an error of DynamoDB or of its SDK becomes an outcome. */
import type { CancellationReason } from '@aws-sdk/client-dynamodb';
import { type NotCommitted, RejectedError } from '../core/outcome.ts';

type Outcome = NotCommitted<never>;

interface SdkError {
  readonly name?: string;
  /** Whose fault it is; only an answer of DynamoDB's has it. */
  readonly $fault?: 'client' | 'server';
  /** Of an error of Node's: what was being done. */
  readonly syscall?: string;
}

/** Rejections that pass: sent again later, the same request may be accepted. */
const TRANSIENT_ERRORS = new Set([
  'ThrottlingException',
  'ProvisionedThroughputExceededException',
  'RequestLimitExceeded',
  // The table is being made, as at a first `npm start`.
  'ResourceNotFoundException',
]);

/** An answer that refuses, or a connection that never came about: this send wrote nothing. */
export function isDefiniteRejection(error: unknown): boolean {
  const { name, $fault, syscall } = (error ?? {}) as SdkError;
  if (syscall === 'connect' || syscall === 'getaddrinfo') return true;
  // It refuses this send because an earlier one, under the same token, is still at work.
  return $fault === 'client' && name !== 'TransactionInProgressException';
}

/** Why a call failed that has written nothing. */
export function outcomeOf(error: unknown): Outcome {
  const { name = '', $fault } = (error ?? {}) as SdkError;
  const isOurMistake = $fault === 'client' && !TRANSIENT_ERRORS.has(name);
  return isOurMistake ? { kind: 'failed', error } : unavailable(error);
}

export function unavailable(cause: unknown) {
  return { kind: 'rejected', code: 'UNAVAILABLE', cause, store: 'DynamoDB' } as const;
}

/** The same of a read, which has nothing to commit: as an error to throw. */
export function errorOfRead(error: unknown): unknown {
  const outcome = outcomeOf(error);
  return outcome.kind === 'rejected' ? new RejectedError(outcome) : error;
}

/**
 * Why the items of the work were refused. One condition that failed means that somebody
 * else has won: the work reads again. Codes: `ConditionalCheckFailed`,
 * `TransactionConflict`, `ThrottlingError`, `ProvisionedThroughputExceeded`,
 * `ItemCollectionSizeLimitExceeded`, `ValidationError`, `None`.
 */
export function outcomeOfReasons(reasons: readonly CancellationReason[], cause: unknown): Outcome {
  const codes = new Set(reasons.map(({ Code }) => Code).filter((code) => code !== 'None'));
  if (codes.has('ConditionalCheckFailed') || codes.has('TransactionConflict')) {
    return { kind: 'retryable', reason: 'conflict', cause };
  }
  const isForNow = codes.has('ThrottlingError') || codes.has('ProvisionedThroughputExceeded');
  // Without a reason it is as good as throttled: nothing was written, and nobody says why.
  if (isForNow || codes.size === 0) return { kind: 'retryable', reason: 'connection', cause };
  return { kind: 'failed', error: cause };
}
