/** The one table from an outcome to its HTTP response. */
import {
  DeadlineError,
  type Outcome,
  type Rejected,
  RejectedError,
  type Retryable,
  type Unknown,
} from '../core/outcome.ts';
import { asFresh, asReplayed } from './codec.ts';
import { type HttpResponse, Problem } from './problems.ts';

/** Longer waits would only slow down a client whose answer is ready sooner. */
const RETRY_AFTER_SECONDS_MAX = 2;

export interface Circumstances {
  /** Where a client whose key is used up finds the state that alone decides. */
  readonly stateUrl?: string | undefined;
  /** The request carried no key: once its outcome is in doubt, nothing is safe to resend. */
  readonly isUnprotected?: boolean;
}

/** With what `once` resolves, or rejects. */
export type Answer =
  | { readonly response: HttpResponse }
  /** `isOfWork`: the work threw it, so a handler may turn it into a refusal of its own. */
  | { readonly error: unknown; readonly isOfWork: boolean };

export function answerOf(outcome: Outcome<HttpResponse>, circumstances: Circumstances): Answer {
  switch (outcome.kind) {
    case 'committed':
      return { response: asFresh(outcome.result, outcome.expiresAtMs) };
    case 'replayed':
      return { response: asReplayed(outcome.result, outcome.expiresAtMs) };
    case 'returned-failure':
      return { response: outcome.result };
    case 'failed':
      return { error: asProblem(outcome.error), isOfWork: true };
    default:
      return { error: problemOf(outcome, circumstances), isOfWork: false };
  }
}

/** A rejection that was thrown, as the problem that answers it; any other error as it is. */
export function asProblem(error: unknown): unknown {
  return error instanceof RejectedError ? problemOf(error.rejected, {}) : error;
}

export function problemOf(
  outcome: Rejected | Retryable | Unknown,
  { stateUrl, isUnprotected = false }: Circumstances,
): Problem {
  const { cause } = outcome;
  switch (outcome.kind) {
    case 'unknown':
      return outcome.isLost ? outcomeLost(cause) : outcomeUnknown(cause, isUnprotected);
    case 'retryable':
      if (outcome.reason === 'in-flight') return inFlight();
      return outcome.reason === 'conflict' ? contention(cause) : unavailable(cause);
  }
  switch (outcome.code) {
    case 'ALREADY_EXISTS':
      return alreadyExists(stateUrl);
    case 'KEY_REUSED':
      return new Problem(
        'KEY_REUSED',
        'This idempotency key was sent before with another request. Use a new key for a new request.',
      );
    case 'ABORTED':
      return inFlight(outcome.retryAfterSeconds);
    case 'CONTENTION':
      return contention(cause);
    case 'UNAVAILABLE':
      return cause instanceof DeadlineError ? tooLate() : unavailable(cause, outcome.store);
  }
}

function tooLate(): Problem {
  return new Problem(
    'UNAVAILABLE',
    'The request ran out of time before its commit and took no effect. Send it again.',
    { retryAfterSeconds: 1 },
  );
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
    { retryAfterSeconds: 1, ...(cause !== undefined && { cause }) },
  );
}

function unavailable(cause: unknown, store = 'The database'): Problem {
  return new Problem(
    'UNAVAILABLE',
    `${store} cannot be reached. Nothing took effect; send the same request again.`,
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
