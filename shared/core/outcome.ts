/**
 * How a mutation ends: the one vocabulary, from the driver's error to the caller's answer. Each
 * driver has one table from its errors to these (`classify-error.ts`), and each trigger one from
 * these to what its caller gets (`http/outcome-response.ts`).
 */

/** The effect stands, and this request made it. */
export interface Committed<Result> {
  readonly kind: 'committed';
  readonly result: Result;
  /** The instant, on the store's clock, up to which a replay is caught. Undefined without a key. */
  readonly expiresAtMs: number | undefined;
}

/** The effect stood before, and this is what was answered then. */
export interface Replayed<Result> {
  readonly kind: 'replayed';
  readonly result: Result;
  readonly expiresAtMs: number;
}

/**
 * - ALREADY_EXISTS: the key was used up before, and its result is not kept.
 * - KEY_REUSED: the key was used before, with another request.
 * - ABORTED: another request with this key holds its claim, and the wait for it ran out.
 * - CONTENTION: others kept changing or locking the rows that the work needs.
 * - UNAVAILABLE: the store cannot be reached, or (`cause` is a DeadlineError) time ran out.
 */
export type RejectionCode =
  | 'ALREADY_EXISTS'
  | 'KEY_REUSED'
  | 'ABORTED'
  | 'CONTENTION'
  | 'UNAVAILABLE';

/** This request took no effect. */
export interface Rejected {
  readonly kind: 'rejected';
  readonly code: RejectionCode;
  /** How long the claim of another is still valid, where that is known. */
  readonly retryAfterSeconds?: number;
  readonly cause?: unknown;
  /** The name of the store, where it is not the database that everything needs. */
  readonly store?: string;
}

/** This try took no effect, and the whole transaction may run again, its claim included. */
export interface Retryable {
  readonly kind: 'retryable';
  readonly reason: 'conflict' | 'connection' | 'in-flight';
  readonly cause: unknown;
}

/**
 * COMMIT was sent and its answer could not be learned. `isLost`: the transaction had ended before
 * it, so its effects may stand without a claim, and resending is not safe.
 */
export interface Unknown {
  readonly kind: 'unknown';
  readonly cause: unknown;
  readonly isLost?: true;
}

/** The work threw, or something permanent is wrong with its statements: it took no effect. */
export interface Failed {
  readonly kind: 'failed';
  readonly error: unknown;
}

/** The work returned a failure: the caller gets it as it is, and nothing is kept. */
export interface ReturnedFailure<Result> {
  readonly kind: 'returned-failure';
  readonly result: Result;
}

/** What a store answers that did not commit. `Kept`: as a codec encoded it. */
export type NotCommitted<Kept> = Replayed<Kept> | Rejected | Retryable | Unknown | Failed;

export type Outcome<Result> = Committed<Result> | NotCommitted<Result> | ReturnedFailure<Result>;

/** The deadline came while the work was running, or before its COMMIT. */
export class DeadlineError extends Error {
  override name = 'DeadlineError';
}

/** The claim was taken over while the work ran: what it did is to be rolled back. */
export class LeaseLostError extends Error {
  override name = 'LeaseLostError';
}

/** A rejection as an error, for what runs inside the work, and for reads. */
export class RejectedError extends Error {
  override name = 'RejectedError';
  readonly rejected: Rejected;

  constructor(rejected: Rejected) {
    super(rejected.code, 'cause' in rejected ? { cause: rejected.cause } : undefined);
    this.rejected = rejected;
  }
}

/** Without a key nothing runs again once COMMIT was sent, however sure its failure is. */
export function withoutRetry<Kept>(
  outcome: NotCommitted<Kept>,
  store?: string,
): NotCommitted<Kept> {
  if (outcome.kind !== 'retryable') return outcome;
  const code = outcome.reason === 'conflict' ? 'CONTENTION' : 'UNAVAILABLE';
  return {
    kind: 'rejected',
    code,
    cause: outcome.cause,
    ...(store !== undefined && code === 'UNAVAILABLE' && { store }),
  };
}
