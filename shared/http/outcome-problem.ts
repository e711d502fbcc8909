import type { Setback } from '../core/contract.ts';
import { Problem } from './problems.ts';

/** Longer waits would only slow down a client whose answer is ready sooner. */
const RETRY_AFTER_SECONDS_MAX = 2;

/** A setback that the client hears of as a problem; the rest are answers of the handler's own. */
export type Refusable = Exclude<Setback, { kind: 'threw' | 'returned-5xx' | 'completed' }>;

/**
 * What the client hears of an attempt that took no effect.
 *
 * Without a key nothing is safe to resend once the outcome is in doubt: then
 * `retryable` is false and there is no Retry-After.
 */
export function problemOf(
  setback: Refusable,
  stateUrl: string | undefined,
  isUnprotected = false,
): Problem {
  switch (setback.kind) {
    case 'already-exists':
      return alreadyExists(stateUrl);
    case 'mismatch':
      return new Problem(
        'KEY_REUSED',
        'This idempotency key was sent before with another request. Use a new key for a new request.',
      );
    case 'in-flight':
      return inFlight(setback.retryAfterSeconds);
    case 'retry':
      if (setback.because === 'in-flight') return inFlight();
      return setback.because === 'conflict'
        ? contention(setback.cause)
        : unavailable(setback.cause);
    case 'contention':
      return contention(setback.cause);
    case 'unavailable':
      return unavailable(setback.cause, setback.what);
    case 'late':
      return new Problem(
        'UNAVAILABLE',
        'The request ran out of time before its commit and took no effect. Send it again.',
        { retryAfterSeconds: 1 },
      );
    case 'unknown-outcome':
      if (setback.isLost) return outcomeLost(setback.cause);
      return outcomeUnknown(setback.cause, isUnprotected);
  }
}

function inFlight(leaseLeftSeconds?: number): Problem {
  return new Problem(
    'ABORTED',
    'A request with this idempotency key is still running. Send the same request again later.',
    { retryAfterSeconds: retryAfter(leaseLeftSeconds) },
  );
}

function retryAfter(leftSeconds = 1): number {
  return Math.min(RETRY_AFTER_SECONDS_MAX, Math.max(1, leftSeconds));
}

function alreadyExists(stateUrl: string | undefined): Problem {
  const where = stateUrl === undefined ? 'Fetch the state' : `Fetch ${stateUrl}`;
  return new Problem(
    'ALREADY_EXISTS',
    `This idempotency key was used up and the response to it is not kept. ${where}: it alone decides. Do not send this key again.`,
    stateUrl === undefined
      ? {}
      : { headers: { link: `<${stateUrl}>; rel="related"` }, members: { state: stateUrl } },
  );
}

function contention(cause: unknown): Problem {
  return new Problem(
    'CONTENTION',
    'Others kept changing the same rows. Nothing took effect; send the same request again.',
    { retryAfterSeconds: 1, cause },
  );
}

function unavailable(cause: unknown, what = 'The database'): Problem {
  return new Problem(
    'UNAVAILABLE',
    `${what} cannot be reached. Nothing took effect; send the same request again.`,
    { retryAfterSeconds: 1, cause },
  );
}

function outcomeUnknown(cause: unknown, isUnprotected: boolean): Problem {
  if (isUnprotected) {
    return new Problem(
      'OUTCOME_UNKNOWN',
      'The answer to the commit was lost, and without an idempotency key it is not safe to send this request again. Fetch the state first.',
      { retryable: false, cause },
    );
  }
  return new Problem(
    'OUTCOME_UNKNOWN',
    'The answer to the commit was lost. Send the same request again with the same key: it takes effect once at most.',
    { retryAfterSeconds: 1, cause },
  );
}

function outcomeLost(cause: unknown): Problem {
  return new Problem(
    'OUTCOME_UNKNOWN',
    'The transaction of this request ended before its commit, so it is not known which of its effects stand. Do not send it again. Fetch the state first.',
    { retryable: false, cause },
  );
}
