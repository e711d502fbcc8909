import type { HttpResponse, Problem } from '../http/problems.ts';

/** One mutation that a client asked for, named by its key and judged by its content. */
export interface Mutation {
  /** Whom the authorizer proved. */
  readonly principal: string;
  /** The client's idempotency key. */
  readonly key: string;
  /** Method and route template; in some stores two routes are two requests. */
  readonly endpoint: string;
  readonly fingerprint: string;
  /**
   * This acquisition's owner token: a random UUID, chosen before the first
   * command. Not the AWS request id, which repeats on an asynchronous retry.
   */
  readonly token: string;
  /** Past this no COMMIT is sent. */
  readonly deadlineMs: number;
}

/** A request that carries no key: run once, protected by nothing (key mode `optional`). */
export type Unprotected = Pick<Mutation, 'principal' | 'deadlineMs'> & { readonly key?: undefined };

/**
 * The caller's mutation. It makes no effect outside `tx`: it may run again when
 * the transaction is retried, and it runs speculatively while the claim is still
 * on its way. For an external call, pass the key on to it, or use an outbox.
 *
 * Return a response, or a Problem, to commit it (a 4xx commits the key and undoes
 * the writes); throw to roll everything back and leave the key unused. A returned
 * 5xx counts as thrown.
 */
export type Work<Tx> = (tx: Tx) => Promise<HttpResponse | Problem>;

/**
 * How much longer than the deadline an answer is waited for. The store's own limits
 * (lock_timeout) end at the deadline and say what was being waited for; this one
 * is for work that hangs elsewhere, and for a store that went silent.
 */
export const SILENCE_MS = 300;

/** How much longer than the deadline the fate of a COMMIT is asked for. */
export const RESOLVE_MS = 600;

/** The deadline came while the work was running, or before its COMMIT. */
export class DeadlineError extends Error {
  override name = 'DeadlineError';
}

/** The claim was taken over while the work ran: what it did is to be rolled back. */
export class LeaseLostError extends Error {
  override name = 'LeaseLostError';
}

/** What is kept of a response; see `stored-response.ts`. */
export interface StoredResponse {
  readonly statusCode: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly isBase64Encoded: boolean;
}

/** What the fast path (L1) knows of a key. */
export type Sight =
  /** It is ours now: a pending entry with our token stands there. */
  | { readonly kind: 'claimed' }
  /** It could not be asked, or holds what it cannot read: the store decides alone. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'pending'; readonly fingerprint: string; readonly deadlineMs: number }
  | {
      readonly kind: 'completed';
      readonly fingerprint: string;
      readonly response: StoredResponse | 'tombstone';
      readonly expiresAtMs: number;
    };

/**
 * L1. Fast and forgetful: it may lose anything at any time, and no method ever
 * rejects or outlasts its budget. Losing it costs latency and stored bodies.
 */
export interface FastPath {
  claim(mutation: Mutation): Promise<Sight>;
  /** Called by the one committer only, so it may overwrite anybody's pending entry. */
  publish(
    mutation: Mutation,
    response: StoredResponse | 'tombstone',
    expiresAtMs: number,
  ): Promise<void>;
  /** Removes our own pending entry, and nobody else's. */
  release(mutation: Mutation): Promise<void>;
}

/**
 * When the store is asked. `first`: the fast path first, and the store only if it has no
 * answer; a replay costs the store nothing. `parallel`: both at once, which saves a first
 * request a round trip, and makes each replay open a transaction that is rolled back.
 */
export type FastPathMode = 'first' | 'parallel';

/** For a service without Redis. */
export const NO_FAST_PATH: FastPath = {
  claim: async () => ({ kind: 'unknown' }),
  publish: async () => {},
  release: async () => {},
};

/** Why an attempt took no effect (`unknown-outcome` apart: there it may have). */
export type Setback =
  /** The key was used up before, by whatever request. */
  | { readonly kind: 'already-exists' }
  /** The key was used up before, by another request. */
  | { readonly kind: 'mismatch' }
  /** This very request was answered before, and the store has the answer. */
  | {
      readonly kind: 'completed';
      readonly response: StoredResponse | 'tombstone';
      readonly expiresAtMs: number;
    }
  /** Another request with this key holds its claim, and the wait for it ran out. */
  | { readonly kind: 'in-flight'; readonly retryAfterSeconds?: number }
  /** The whole transaction may be tried again, step 0 included. */
  | {
      readonly kind: 'retry';
      readonly because: 'conflict' | 'connection' | 'in-flight';
      readonly cause: unknown;
    }
  /** Rows that the work needs stayed locked by others. */
  | { readonly kind: 'contention'; readonly cause: unknown }
  /** `what`: the name of the store, where it is not the database that everything needs. */
  | { readonly kind: 'unavailable'; readonly cause: unknown; readonly what?: string }
  /** The deadline came first. */
  | { readonly kind: 'late' }
  /**
   * COMMIT was sent and its answer could not be learned. `isLost`: the transaction had ended
   * before it, so its effects may stand without a claim and resending is not safe.
   */
  | { readonly kind: 'unknown-outcome'; readonly cause: unknown; readonly isLost?: true }
  /** The work threw this, or something permanent is wrong with its SQL. */
  | { readonly kind: 'threw'; readonly error: unknown }
  /** The work returned a 5xx: it goes to the client, and nothing is kept. */
  | { readonly kind: 'returned-5xx'; readonly response: HttpResponse };

export type Settlement =
  | {
      readonly kind: 'committed';
      readonly response: HttpResponse;
      readonly stored: StoredResponse | 'tombstone';
      /** The instant, on the store's clock, up to which a replay is caught. */
      readonly expiresAtMs: number | undefined;
    }
  | Setback;

/** What the work came to. */
export interface Completion {
  readonly response: HttpResponse;
  /** The same, as a replay will repeat it. */
  readonly stored: StoredResponse | 'tombstone';
  /** False undoes what the work wrote and keeps the claim: a refusal. */
  readonly keepWrites: boolean;
}

/** One open transaction of a store, with its claim already on the way. */
export interface Attempt<Tx> {
  /** Handed to the work. No answer reaches the work before the claim's own. */
  readonly tx: Tx;
  /** Resolves when the claim is ours; rejects when it is not. */
  readonly claimed: Promise<unknown>;
  /** The point of truth. */
  commit(completion: Completion): Promise<Settlement>;
  /** Rolls back, gives the connection up, and says what `error` means. Never rejects. */
  abandon(error: unknown): Promise<Setback>;
  /**
   * The same where nothing failed: the fast path has answered. Does not wait for a claim
   * that is itself waiting for another's. Never rejects.
   */
  withdraw(): Promise<void>;
}

/** Where the truth lives: it holds the claim and the mutation in one transaction. */
export interface Store<Tx> {
  /**
   * Opens what a first request would wait for, while the fast path opens its own; undefined
   * when there is nothing to open. Never rejects, and takes a quarter of a second at most.
   */
  warm?(): Promise<void> | undefined;
  begin(mutation: Mutation | Unprotected): Promise<Attempt<Tx> | Setback>;
  /**
   * Gives back a claim that outlives its transaction; called when the work has failed.
   * Removes our own claim and nobody else's. Never rejects.
   */
  release?(mutation: Mutation): Promise<void>;
}

/** Which layer decided: L1 the fast path, L2 the claim, L3 the version, `handler` the work itself. */
export type Layer = 'L1' | 'L2' | 'L3' | 'handler' | 'request';
