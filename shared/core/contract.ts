import type { Committed, NotCommitted } from './outcome.ts';

/** One mutation that a client asked for, named by its key and judged by its content. */
export interface Mutation {
  /** Whom the authorizer proved. */
  readonly principal: string;
  /** The client's idempotency key. */
  readonly key: string;
  /** Method and route template; in some stores two routes are two requests. */
  readonly endpoint: string;
  /** `fingerprintOf` makes it: a version, a colon and a hash. Other versions are not compared. */
  readonly fingerprint: string;
  /**
   * This acquisition's owner token: a random UUID, chosen before the first
   * command. Not the AWS request id, which repeats on an asynchronous retry.
   */
  readonly token: string;
  /** Past this no COMMIT is sent. On this process' clock. */
  readonly deadlineMs: number;
}

/** A request that carries no key: run once, protected by nothing (key mode `optional`). */
export type Unprotected = Pick<Mutation, 'principal' | 'deadlineMs'> & { readonly key?: undefined };

/**
 * The caller's mutation. It makes no effect outside `tx`: it may run again when
 * the transaction is retried, and it runs speculatively while the claim is still
 * on its way. For an external call, pass the key on to it, or use an outbox.
 *
 * What it returns commits, a refusal too (it commits the key and undoes the writes); what it
 * throws rolls everything back and leaves the key unused. A returned failure counts as thrown.
 */
export type Work<Tx, Returned = unknown> = (tx: Tx) => Promise<Returned>;

/** What is kept of a result: a value of JSON that stores and caches do not look into. */
export type Kept = unknown;

/** Kept in place of a result that is too large: the key is used up, and there is nothing to replay. */
export const TOMBSTONE = 'tombstone';

/** What a trigger knows of results and the core does not: HTTP is one of these. */
export interface Codec<Returned, Result> {
  /**
   * What the work returned, as a copy in plain data that nobody else holds.
   *
   * @throws TypeError for what could not be sent or kept. It is called before COMMIT: after it
   * nothing may fail.
   */
  accept(returned: Returned): Result;
  /** A refusal keeps the claim and undoes what the work wrote. */
  isRefusal(result: Result): boolean;
  /** A failure keeps nothing, so that a retry can do better. */
  isFailure(result: Result): boolean;
  /** What a replay repeats, or TOMBSTONE. */
  encode(result: Result): Kept;
  /** Undefined for what is no such value: whoever can write to a store could have put it there. */
  decode(kept: Kept): Result | undefined;
}

/**
 * How much longer than the deadline an answer is waited for. The store's own limits
 * (lock_timeout) end at the deadline and name what was being waited for; this one
 * is for work that hangs elsewhere, and for a store that does not answer.
 */
export const ANSWER_GRACE_MS = 300;

/** How much longer than the deadline the outcome of a COMMIT is looked up. */
export const COMMIT_LOOKUP_GRACE_MS = 600;

/** What the cache (L1) holds under a key. */
export type CacheLookup =
  /** Our own pending entry, which this claim has put there. */
  | { readonly kind: 'claimed' }
  /** It could not be asked, or holds what it cannot read: the store decides alone. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'pending'; readonly fingerprint: string; readonly deadlineMs: number }
  | {
      readonly kind: 'completed';
      readonly fingerprint: string;
      readonly kept: Kept;
      readonly expiresAtMs: number;
    };

/** One claim's handle on its entry. No method rejects or outlasts its budget. */
export interface CacheClaim {
  readonly lookup: CacheLookup;
  /** Called by the one committer only, so it may overwrite anybody's pending entry. */
  publish(kept: Kept, expiresAtMs: number): Promise<void>;
  /** Removes our own pending entry, and nobody else's. */
  release(): Promise<void>;
}

/**
 * L1. Fast and forgetful: it may lose anything at any time, and it neither rejects nor outlasts
 * its budget. Losing it costs latency and stored bodies.
 */
export interface Cache {
  claim(mutation: Mutation): Promise<CacheClaim>;
}

/**
 * When the store is asked. `first`: the cache first, and the store only if it has no
 * answer; a replay costs the store nothing. `parallel`: both at once, which saves a first
 * request a round trip, and makes each replay open a transaction that is rolled back.
 */
export type CacheMode = 'first' | 'parallel';

/** What is known where no cache could be asked. */
export const NO_CLAIM: CacheClaim = {
  lookup: { kind: 'unknown' },
  publish: async () => {},
  release: async () => {},
};

/** For a service without Redis. */
export const NO_CACHE: Cache = { claim: async () => NO_CLAIM };

/** What the work came to. */
export interface Completion {
  /** As a replay will repeat it. */
  readonly kept: Kept;
  /** False undoes what the work wrote and keeps the claim: a refusal. */
  readonly keepWrites: boolean;
}

/** One open transaction of a store, with its claim already on the way. */
export interface OpenTransaction<Tx> {
  /** Handed to the work. No answer reaches the work before the claim's own. */
  readonly tx: Tx;
  /** Resolves when the claim is ours; rejects when it is not. */
  readonly claimed: Promise<unknown>;
  /** The point of truth. */
  commit(completion: Completion): Promise<Committed<Kept> | NotCommitted<Kept>>;
  /** Rolls back, gives the connection up, and classifies `error`. Never rejects. */
  rollback(error: unknown): Promise<NotCommitted<Kept>>;
  /**
   * The same where nothing failed: the cache has answered. Does not wait for a claim
   * that is itself waiting for another's. Never rejects.
   */
  cancel(): Promise<void>;
}

/** Where the truth lives: it holds the claim and the mutation in one transaction. */
export interface Store<Tx> {
  /**
   * Opens what a first request would wait for, while the cache opens its own; undefined
   * when there is nothing to open. Never rejects, and takes a quarter of a second at most.
   */
  warm?(): Promise<void> | undefined;
  begin(mutation: Mutation | Unprotected): Promise<OpenTransaction<Tx> | NotCommitted<Kept>>;
  /**
   * Gives back a claim that outlives its transaction; called when the work has failed.
   * Removes our own claim and nobody else's. Never rejects.
   */
  release?(mutation: Mutation): Promise<void>;
}

export function isOpen<Tx>(
  begun: OpenTransaction<Tx> | NotCommitted<Kept>,
): begun is OpenTransaction<Tx> {
  return 'tx' in begun;
}
