/**
 * The life of one mutation, from top to bottom:
 *
 *   L1   claim the key in the cache      completed → its replay, pending → ABORTED or KEY_REUSED
 *        (mode `parallel` asks the store meanwhile: parallel.ts)
 *   L2   open the transaction: the claim is its step 0; a used key → ALREADY_EXISTS
 *        run the work; L3, the compare-and-swap, is in there
 *        COMMIT                          the point of truth
 *   L1   publish the result, or, without an acknowledged COMMIT, release the key
 *
 * It is one lexical scope on purpose. Spread over before/after/onError hooks,
 * somebody else's hook that throws would release what was committed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs } from './clock.ts';
import {
  ANSWER_GRACE_MS,
  type Cache,
  type CacheClaim,
  type CacheLookup,
  type CacheMode,
  type Codec,
  isOpen,
  type Kept,
  type Mutation,
  NO_CLAIM,
  type Store,
  TOMBSTONE,
  type Unprotected,
  type Work,
} from './contract.ts';
import { areComparable } from './fingerprint.ts';
import { claimOf } from './guarded-cache.ts';
import { DeadlineError, type NotCommitted, type Outcome } from './outcome.ts';
import { storeGivingWayTo, workGivingWayTo } from './parallel.ts';
import { withTimeout } from './timeout.ts';

export interface OnceParts<Tx, Returned, Result> {
  readonly cache: Cache;
  /** Default: `first`. */
  readonly cacheMode?: CacheMode | undefined;
  readonly store: Store<Tx>;
  readonly codec: Codec<Returned, Result>;
  /** Told of a cache that rejects, throws, or does not answer within the time of the request. */
  readonly onCacheFailure?: ((error: unknown) => void) | undefined;
}

/** How the request ended, and who decided it. */
export interface Ending<Result> {
  readonly outcome: Outcome<Result>;
  readonly decidedBy: 'cache' | 'store';
  /** How often the transaction was tried. */
  readonly attempts: number;
  /** The publish of a committed result, under way. Await it before the answer; it never rejects. */
  readonly published?: Promise<void>;
}

/** Runs `work` at most once for this principal and key, whoever else is trying. */
export async function runOnce<Tx, Returned, Result>(
  mutation: Mutation,
  work: Work<Tx, Returned>,
  parts: OnceParts<Tx, Returned, Result>,
): Promise<Ending<Result>> {
  const claiming = claimOf(parts.cache, mutation, parts.onCacheFailure);
  if (parts.cacheMode === 'parallel') return runInParallel(mutation, work, parts, claiming);
  // Both before any answer: a Lambda that has answered is frozen, and so would be a
  // connection that is half made.
  const [claim] = await Promise.all([claiming, parts.store.warm?.()]);
  const answer = answerIn(claim.lookup, mutation, parts.codec);
  if (answer) return { outcome: answer, decidedBy: 'cache', attempts: 0 };
  return runInStore(mutation, work, parts, () => claim);
}

/** Mode `parallel`; see parallel.ts. */
async function runInParallel<Tx, Returned, Result>(
  mutation: Mutation,
  work: Work<Tx, Returned>,
  parts: OnceParts<Tx, Returned, Result>,
  claiming: Promise<CacheClaim>,
): Promise<Ending<Result>> {
  const answering = claiming.then(({ lookup }) => answerIn(lookup, mutation, parts.codec));
  const ending = await runInStore(
    mutation,
    workGivingWayTo(answering, work),
    { ...parts, store: storeGivingWayTo(answering, parts.store) },
    // Of an entry that holds the answer nothing is ours.
    async () => ((await answering) ? NO_CLAIM : claiming),
  );
  const answer = await answering;
  return answer ? { ...ending, outcome: answer, decidedBy: 'cache' } : ending;
}

/** Key mode `optional`, no key: the same transaction with nothing to protect it. */
export async function runUnprotected<Tx, Returned, Result>(
  request: Unprotected,
  work: Work<Tx, Returned>,
  parts: OnceParts<Tx, Returned, Result>,
): Promise<Ending<Result>> {
  const { outcome, attempts } = await commitWithRetries(request, work, parts);
  return { outcome, decidedBy: 'store', attempts };
}

/** Mismatch before busy, busy before anything else; undefined where the store has to decide. */
function answerIn<Result>(
  lookup: CacheLookup,
  mutation: Mutation,
  codec: Codec<never, Result>,
): NotCommitted<Result> | undefined {
  if (lookup.kind === 'claimed' || lookup.kind === 'unknown') return undefined;
  const result = lookup.kind === 'completed' ? resultIn(lookup.kept, codec) : undefined;
  // Of an entry that cannot be read nothing is known.
  const isUnreadable =
    lookup.kind === 'completed' && result === undefined && lookup.kept !== TOMBSTONE;
  if (isUnreadable || !areComparable(lookup.fingerprint, mutation.fingerprint)) return undefined;
  if (lookup.fingerprint !== mutation.fingerprint) return { kind: 'rejected', code: 'KEY_REUSED' };
  if (lookup.kind === 'pending') {
    const retryAfterSeconds = Math.ceil((lookup.deadlineMs - nowMs()) / 1000);
    return { kind: 'rejected', code: 'ABORTED', retryAfterSeconds };
  }
  return replayOf(result, lookup.expiresAtMs);
}

function replayOf<Result>(result: Result | undefined, expiresAtMs: number): NotCommitted<Result> {
  return result === undefined
    ? { kind: 'rejected', code: 'ALREADY_EXISTS' }
    : { kind: 'replayed', result, expiresAtMs };
}

/** Undefined for a tombstone, and for what the codec cannot read, whatever it throws. */
function resultIn<Result>(kept: Kept, codec: Codec<never, Result>): Result | undefined {
  if (kept === TOMBSTONE) return undefined;
  try {
    return codec.decode(kept);
  } catch {
    return undefined;
  }
}

/** What is kept, as the result that it stands for. */
function decoded<Result>(
  outcome: NotCommitted<Kept>,
  codec: Codec<never, Result>,
): NotCommitted<Result> {
  if (outcome.kind !== 'replayed') return outcome;
  return replayOf(resultIn(outcome.result, codec), outcome.expiresAtMs);
}

/** @param claimNow called when the transaction has ended, for the cache's claim. */
async function runInStore<Tx, Returned, Result>(
  mutation: Mutation,
  work: Work<Tx, Returned>,
  parts: OnceParts<Tx, Returned, Result>,
  claimNow: () => CacheClaim | Promise<CacheClaim>,
): Promise<Ending<Result>> {
  let tried: Tried<Result> | undefined;
  try {
    tried = await commitWithRetries(mutation, work, parts);
  } finally {
    if (tried?.outcome.kind !== 'committed') {
      await releaseClaims(mutation, tried?.outcome, await claimNow(), parts.store);
    }
  }
  const { outcome, attempts, kept } = tried;
  const ending = { outcome, attempts, decidedBy: 'store' } as const;
  if (outcome.kind !== 'committed' || outcome.expiresAtMs === undefined) return ending;
  const claim = await claimNow();
  return { ...ending, published: claim.publish(kept, outcome.expiresAtMs) };
}

/**
 * Every exit without an acknowledged COMMIT gives the key back, so that the next
 * retry is answered by the store and not by a claim that nobody works on. A claim in
 * the store itself is given back only where it was ours and is surely not committed.
 */
async function releaseClaims<Tx, Result>(
  mutation: Mutation,
  outcome: Outcome<Result> | undefined,
  claim: CacheClaim,
  store: Store<Tx>,
): Promise<void> {
  await claim.release();
  if (outcome === undefined || isOursAndUndone(outcome)) await store.release?.(mutation);
}

function isOursAndUndone(outcome: Outcome<unknown>): boolean {
  switch (outcome.kind) {
    case 'failed':
    case 'returned-failure':
    case 'retryable':
      return true;
    case 'rejected':
      return outcome.code === 'CONTENTION' || outcome.cause instanceof DeadlineError;
    default:
      return false;
  }
}

interface Tried<Result> {
  readonly outcome: Outcome<Result>;
  readonly attempts: number;
  /** Of what was committed. */
  readonly kept?: Kept;
}

/** Enough for a failover or a burst of deadlocks; with the waits below about a second. */
const ATTEMPTS_MAX = 5;

/** The whole transaction again, step 0 included, while that is safe and there is time. */
async function commitWithRetries<Tx, Returned, Result>(
  request: Mutation | Unprotected,
  work: Work<Tx, Returned>,
  parts: OnceParts<Tx, Returned, Result>,
): Promise<Tried<Result>> {
  for (let attempts = 1; ; attempts++) {
    const tried = { ...(await attemptOnce(request, work, parts)), attempts };
    if (tried.outcome.kind !== 'retryable' || attempts === ATTEMPTS_MAX) return tried;
    const waitMs = backoffMs(attempts);
    if (nowMs() + waitMs >= request.deadlineMs) return tried;
    await sleep(waitMs);
  }
}

/** Full jitter, so that those who collided once do not meet again: up to 20, 40, 80, 160 ms. */
function backoffMs(attempts: number): number {
  return Math.random() * 10 * 2 ** attempts;
}

async function attemptOnce<Tx, Returned, Result>(
  request: Mutation | Unprotected,
  work: Work<Tx, Returned>,
  { store, codec }: OnceParts<Tx, Returned, Result>,
): Promise<Omit<Tried<Result>, 'attempts'>> {
  if (nowMs() >= request.deadlineMs) return { outcome: tooLate() };
  const open = await store.begin(request);
  if (!isOpen(open)) return { outcome: decoded(open, codec) };
  try {
    const returned = await withTimeout(
      work(open.tx),
      request.deadlineMs - nowMs() + ANSWER_GRACE_MS,
      () => new DeadlineError('The work did not end by the deadline of the request.'),
    );
    // A used key outranks whatever the work made of the answers it never got.
    await open.claimed;
    const result = codec.accept(returned);
    if (codec.isFailure(result)) {
      await open.rollback(undefined);
      return { outcome: { kind: 'returned-failure', result } };
    }
    if (nowMs() >= request.deadlineMs) throw new DeadlineError();
    const kept = codec.encode(result);
    const ended = await open.commit({ kept, keepWrites: !codec.isRefusal(result) });
    return ended.kind === 'committed'
      ? { outcome: { ...ended, result }, kept }
      : { outcome: decoded(ended, codec) };
  } catch (error) {
    return { outcome: decoded(await open.rollback(error), codec) };
  }
}

function tooLate(): NotCommitted<never> {
  return { kind: 'rejected', code: 'UNAVAILABLE', cause: new DeadlineError() };
}
