import { Problem } from '../http/problems.ts';
import type { Tx } from './transaction.ts';

/** What a swap answers that found another version than it had read. */
export const STALE = Symbol('stale');

/** Who has lost twice takes the rows' locks first, so that somebody's third try is never their last. */
const OPTIMISTIC_TRIES = 2;

/** With the locks in hand a swap cannot lose; the bound is for work that reads without them. */
const TRIES_MAX = 10;

/**
 * L3: read, compute, compare-and-swap on `data_version`, and again from a fresh
 * read when somebody was faster. Runs inside the claimed transaction; what a lost
 * try has written is undone, the claim stays.
 *
 * `attempt` reads the rows, then updates each `… WHERE data_version = $read`, in
 * one global order when there are several, and answers STALE when one matched no
 * row. From the third try on it is told to read them `FOR NO KEY UPDATE`, in that
 * same order: under many writers, trying again alone starves those who read more.
 *
 * @throws Problem CONTENTION after 10 lost tries.
 */
export async function compareAndSwap<T>(
  tx: Tx,
  attempt: (isLocking: boolean) => Promise<T | typeof STALE>,
): Promise<T> {
  for (let tries = 1; tries <= TRIES_MAX; tries++) {
    const swapped = await attempt(tries > OPTIMISTIC_TRIES);
    if (swapped !== STALE) return swapped;
    await tx.restart();
  }
  throw new Problem(
    'CONTENTION',
    'Others kept changing the same rows. Nothing took effect; send the same request again.',
    { retryAfterSeconds: 1 },
  );
}
