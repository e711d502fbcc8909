/**
 * The life of one mutation, from top to bottom:
 *
 *   L1   claim the key in Redis          completed → its replay, pending → 409/422
 *   L2   open the transaction: the claim is its step 0; a used key → 409
 *        run the work; L3, the compare-and-swap, is in there
 *        COMMIT                          the point of truth
 *   L1   publish the response, or, without an acknowledged COMMIT, release the key
 *
 * It is one lexical scope on purpose. Spread over before/after/onError hooks,
 * somebody else's hook that throws would release what was committed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs } from '../clock.ts';
import { type HttpResponse, isFailure, isRefusal, Problem } from '../http/problems.ts';
import {
  type Attempt,
  DeadlineError,
  type FastPath,
  type Layer,
  type Mutation,
  type Setback,
  type Settlement,
  SILENCE_MS,
  type Sight,
  type Store,
  type Unprotected,
  type Work,
} from './contract.ts';
import { areComparable } from './fingerprint.ts';
import { problemOf } from './setbacks.ts';
import { asFresh, asReplayed, toResponse, toStored } from './stored-response.ts';

export interface OnceParts<Tx> {
  readonly fastPath: FastPath;
  readonly store: Store<Tx>;
  /** Larger bodies are not kept: a retry hears ALREADY_EXISTS. */
  readonly storedBodyBytesMax: number;
  /** Where a client whose key is used up finds the state that alone decides. */
  readonly stateUrl?: string | undefined;
  readonly problemBaseUrl?: string | undefined;
}

/** How the request ended, and which layer decided. */
export type Verdict = { readonly layer: Layer; readonly attempts: number } & (
  | { readonly kind: 'fresh' | 'replayed'; readonly response: HttpResponse }
  /** The work returned a 5xx: sent as it is, nothing kept. */
  | { readonly kind: 'returned-5xx'; readonly response: HttpResponse }
  | { readonly kind: 'refused'; readonly error: Problem }
  | { readonly kind: 'threw'; readonly error: unknown }
);

/** Runs `work` at most once for this principal and key, whoever else is trying. */
export async function runOnce<Tx>(
  mutation: Mutation,
  work: Work<Tx>,
  parts: OnceParts<Tx>,
): Promise<Verdict> {
  const sight = await parts.fastPath.claim(mutation);
  const seen = judgeSight(sight, mutation, parts.stateUrl);
  if (seen) return seen;

  let settled: Settled | undefined;
  try {
    settled = await commitWithRetries(mutation, work, parts);
  } finally {
    // Every exit without an acknowledged COMMIT gives the key back, so that the
    // next retry is answered by L2 and not by a pending that nobody works on.
    if (settled?.settlement.kind !== 'committed') await parts.fastPath.release(mutation);
  }
  if (settled.settlement.kind === 'committed') {
    const { response, expiresAtMs } = settled.settlement;
    const stored = toStored(response, parts.storedBodyBytesMax);
    await parts.fastPath.publish(mutation, stored, expiresAtMs as number);
  }
  return verdictOf(settled, parts.stateUrl);
}

/** Key mode `optional`, no key: the same transaction with nothing to protect it. */
export async function runUnprotected<Tx>(
  request: Unprotected,
  work: Work<Tx>,
  parts: OnceParts<Tx>,
): Promise<Verdict> {
  return verdictOf(await commitWithRetries(request, work, parts), undefined, true);
}

/** L1's answer, where it has one: mismatch before busy, busy before anything else. */
function judgeSight(
  sight: Sight,
  mutation: Mutation,
  stateUrl: string | undefined,
): Verdict | undefined {
  if (sight.kind === 'claimed' || sight.kind === 'unknown') return undefined;
  if (!areComparable(sight.fingerprint, mutation.fingerprint)) return undefined;
  const decided = { layer: 'L1', attempts: 0 } as const;
  if (sight.fingerprint !== mutation.fingerprint) {
    return { ...decided, kind: 'refused', error: keyReused() };
  }
  if (sight.kind === 'pending') {
    const leftSeconds = Math.ceil((sight.deadlineMs - nowMs()) / 1000);
    const setback: Setback = { kind: 'in-flight', retryAfterSeconds: leftSeconds };
    return { ...decided, kind: 'refused', error: problemOf(setback, stateUrl) };
  }
  if (sight.response === 'tombstone') {
    return { ...decided, kind: 'refused', error: problemOf({ kind: 'already-exists' }, stateUrl) };
  }
  return { ...decided, kind: 'replayed', response: asReplayed(sight.response, sight.expiresAtMs) };
}

interface Settled {
  readonly settlement: Settlement;
  readonly attempts: number;
}

/** Enough for a failover or a burst of deadlocks; with the waits below about a second. */
const ATTEMPTS_MAX = 5;

/** The whole transaction again, step 0 included, while that is safe and there is time. */
async function commitWithRetries<Tx>(
  request: Mutation | Unprotected,
  work: Work<Tx>,
  parts: OnceParts<Tx>,
): Promise<Settled> {
  for (let attempts = 1; ; attempts++) {
    const settlement = await attemptOnce(request, work, parts);
    if (settlement.kind !== 'retry' || attempts === ATTEMPTS_MAX) return { settlement, attempts };
    const waitMs = backoffMs(attempts);
    if (nowMs() + waitMs >= request.deadlineMs) return { settlement, attempts };
    await sleep(waitMs);
  }
}

/** Full jitter, so that those who collided once do not meet again: up to 20, 40, 80, 160 ms. */
function backoffMs(attempts: number): number {
  return Math.random() * 10 * 2 ** attempts;
}

async function attemptOnce<Tx>(
  request: Mutation | Unprotected,
  work: Work<Tx>,
  { store, problemBaseUrl }: OnceParts<Tx>,
): Promise<Settlement> {
  if (nowMs() >= request.deadlineMs) return { kind: 'late' };
  const attempt = await store.begin(request);
  if (!isAttempt(attempt)) return attempt;
  try {
    const returned = await beforeDeadline(request.deadlineMs, work(attempt.tx));
    // A used key outranks whatever the work made of the answers it never got.
    await attempt.claimed;
    const response = toResponse(returned, problemBaseUrl);
    if (isFailure(response.statusCode)) {
      await attempt.abandon(undefined);
      return { kind: 'returned-5xx', response };
    }
    if (nowMs() >= request.deadlineMs) throw new DeadlineError();
    return await attempt.commit(response, !isRefusal(response.statusCode));
  } catch (error) {
    return await attempt.abandon(error);
  }
}

function isAttempt<Tx>(begun: Attempt<Tx> | Setback): begun is Attempt<Tx> {
  return 'tx' in begun;
}

async function beforeDeadline<T>(deadlineMs: number, promise: Promise<T>): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new DeadlineError()), deadlineMs - nowMs() + SILENCE_MS);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

function verdictOf(
  { settlement, attempts }: Settled,
  stateUrl: string | undefined,
  isUnprotected = false,
): Verdict {
  switch (settlement.kind) {
    case 'committed': {
      const response = asFresh(settlement.response, settlement.expiresAtMs);
      return { kind: 'fresh', layer: 'handler', attempts, response };
    }
    case 'returned-5xx':
      return { kind: 'returned-5xx', layer: 'handler', attempts, response: settlement.response };
    case 'threw':
      return {
        kind: 'threw',
        layer: isVersionConflict(settlement.error) ? 'L3' : 'handler',
        attempts,
        error: settlement.error,
      };
    default: {
      const error = problemOf(settlement, stateUrl, isUnprotected);
      return { kind: 'refused', layer: isL3(settlement) ? 'L3' : 'L2', attempts, error };
    }
  }
}

function isVersionConflict(error: unknown): boolean {
  return (
    error instanceof Problem && (error.code === 'VERSION_MISMATCH' || error.code === 'CONTENTION')
  );
}

function isL3(setback: Setback): boolean {
  return (
    setback.kind === 'contention' || (setback.kind === 'retry' && setback.because === 'conflict')
  );
}

function keyReused(): Problem {
  return new Problem(
    'KEY_REUSED',
    'This idempotency key was sent before with another request. Use a new key for a new request.',
  );
}
