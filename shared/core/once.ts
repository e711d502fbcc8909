/**
 * The life of one mutation, from top to bottom:
 *
 *   L1   claim the key in Redis          completed → its replay, pending → 409/422
 *        (in mode `parallel` while L2 is asked already, and heard before it)
 *   L2   open the transaction: the claim is its step 0; a used key → 409
 *        run the work; L3, the compare-and-swap, is in there
 *        COMMIT                          the point of truth
 *   L1   publish the response, or, without an acknowledged COMMIT, release the key
 *
 * It is one lexical scope on purpose. Spread over before/after/onError hooks,
 * somebody else's hook that throws would release what was committed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { problemOf, type Refusable } from '../http/outcome-problem.ts';
import { type HttpResponse, isFailure, isRefusal, Problem } from '../http/problems.ts';
import { toResponse } from '../http/response.ts';
import { asFresh, asReplayed, toStored } from '../http/stored-response.ts';
import { nowMs } from './clock.ts';
import {
  type Attempt,
  DeadlineError,
  type FastPath,
  type FastPathMode,
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

export interface OnceParts<Tx> {
  readonly fastPath: FastPath;
  /** `first` where it is not said. */
  readonly fastPathMode?: FastPathMode | undefined;
  readonly store: Store<Tx>;
  /** Larger bodies are not kept: a retry hears ALREADY_EXISTS. */
  readonly storedBodyBytesMax: number;
  /** Where a client whose key is used up finds the state that alone decides. */
  readonly stateUrl?: string | undefined;
  readonly problemBaseUrl?: string | undefined;
}

/** How the request ended, and which layer decided. */
export type Verdict = {
  readonly layer: Layer;
  readonly attempts: number;
  /** L1 is being told, of a response that was committed. Await it before the answer; it never rejects. */
  readonly published?: Promise<void>;
} & (
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
  const sighting = lookAhead(mutation, parts.fastPath);
  if (parts.fastPathMode !== 'parallel') {
    // Both before any answer: a Lambda that has answered is frozen, and so would be a
    // connection that is half made.
    const [seen] = await Promise.all([sighting, parts.store.warm?.()]);
    if (seen) return verdictOf({ settlement: seen, attempts: 0 }, 'L1', parts);
  }

  let settled: Settled | undefined;
  let seen: Setback | undefined;
  try {
    settled = await commitWithRetries(mutation, work, parts, sighting);
  } finally {
    seen = await sighting;
    if (!seen && settled?.settlement.kind !== 'committed') {
      await giveBack(mutation, settled?.settlement, parts);
    }
  }
  if (settled.settlement.kind !== 'committed') {
    return verdictOf(settled, seen ? 'L1' : 'L2', parts);
  }
  const { stored, expiresAtMs } = settled.settlement;
  const published = parts.fastPath.publish(mutation, stored, expiresAtMs as number);
  return { ...verdictOf(settled, 'L2', parts), published };
}

/** Key mode `optional`, no key: the same transaction with nothing to protect it. */
export async function runUnprotected<Tx>(
  request: Unprotected,
  work: Work<Tx>,
  parts: OnceParts<Tx>,
): Promise<Verdict> {
  return verdictOf(await commitWithRetries(request, work, parts), 'L2', parts, true);
}

/** L1's answer, where it has one: from then on nothing else counts. Never rejects. */
type Sighting = Promise<Setback | undefined>;

const NOTHING_SEEN: Sighting = Promise.resolve(undefined);

async function lookAhead(mutation: Mutation, fastPath: FastPath): Sighting {
  return judgeSight(await fastPath.claim(mutation), mutation);
}

/** Mismatch before busy, busy before anything else. */
function judgeSight(sight: Sight, mutation: Mutation): Setback | undefined {
  if (sight.kind === 'claimed' || sight.kind === 'unknown') return undefined;
  if (!areComparable(sight.fingerprint, mutation.fingerprint)) return undefined;
  if (sight.fingerprint !== mutation.fingerprint) return { kind: 'mismatch' };
  if (sight.kind === 'completed') return sight;
  return { kind: 'in-flight', retryAfterSeconds: Math.ceil((sight.deadlineMs - nowMs()) / 1000) };
}

/**
 * Every exit without an acknowledged COMMIT gives the key back, so that the next
 * retry is answered by the store and not by a claim that nobody works on. A claim in
 * the store itself is given back only where it was ours and is surely not committed.
 */
async function giveBack<Tx>(
  mutation: Mutation,
  setback: Setback | undefined,
  { fastPath, store }: OnceParts<Tx>,
): Promise<void> {
  await fastPath.release(mutation);
  if (setback === undefined || OURS_AND_UNDONE.has(setback.kind)) await store.release?.(mutation);
}

const OURS_AND_UNDONE: ReadonlySet<Setback['kind']> = new Set([
  'threw',
  'returned-5xx',
  'retry',
  'contention',
  'late',
]);

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
  sighting = NOTHING_SEEN,
): Promise<Settled> {
  for (let attempts = 1; ; attempts++) {
    const settlement = await attemptOnce(request, work, parts, sighting);
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
  { store, problemBaseUrl, storedBodyBytesMax }: OnceParts<Tx>,
  sighting: Sighting,
): Promise<Settlement> {
  if (nowMs() >= request.deadlineMs) return (await sighting) ?? { kind: 'late' };
  const attempt = await store.begin(request);
  if (!isAttempt(attempt)) return (await sighting) ?? attempt;
  try {
    const doing = Promise.all([work(attempt.tx), throwIfSeen(sighting)]);
    const [returned] = await beforeDeadline(request.deadlineMs, doing);
    // A used key outranks whatever the work made of the answers it never got.
    await attempt.claimed;
    const response = toResponse(returned, problemBaseUrl);
    if (isFailure(response.statusCode)) {
      await attempt.abandon(undefined);
      return { kind: 'returned-5xx', response };
    }
    if (nowMs() >= request.deadlineMs) throw new DeadlineError();
    const stored = toStored(response, storedBodyBytesMax);
    return await attempt.commit({ response, stored, keepWrites: !isRefusal(response.statusCode) });
  } catch (error) {
    const seen = await sighting;
    if (!seen) return await attempt.abandon(error);
    await attempt.withdraw();
    if (request.key !== undefined) await store.release?.(request);
    return seen;
  }
}

/** Ends the wait for the work: its claim may be waiting for the very request that L1 saw. */
async function throwIfSeen(sighting: Sighting): Promise<void> {
  if (await sighting) throw new Error('the fast path has the answer');
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

function verdictOf<Tx>(
  { settlement, attempts }: Settled,
  claimLayer: 'L1' | 'L2',
  { stateUrl }: OnceParts<Tx>,
  isUnprotected = false,
): Verdict {
  const refuse = (setback: Refusable): Verdict => ({
    kind: 'refused',
    layer: isL3(setback) ? 'L3' : claimLayer,
    attempts,
    error: problemOf(setback, stateUrl, isUnprotected),
  });
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
    case 'completed':
      if (settlement.response !== 'tombstone') {
        const response = asReplayed(settlement.response, settlement.expiresAtMs);
        return { kind: 'replayed', layer: claimLayer, attempts, response };
      }
      return refuse({ kind: 'already-exists' });
    default:
      return refuse(settlement);
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
