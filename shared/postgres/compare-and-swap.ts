import { Problem } from '../http/problems.ts';
import type { Tx } from './transaction.ts';

/** What a swap answers that found another version than it had read. */
export const STALE = Symbol('stale');

/** Each try that loses means that somebody else won, so the queue ahead gets shorter. */
const TRIES_MAX = 10;

/**
 * L3: read, compute, compare-and-swap on `data_version`, and again from a fresh
 * read when somebody was faster. Runs inside the claimed transaction; what a lost
 * try has written is undone, the claim stays.
 *
 * `attempt` reads the rows, then updates each `… WHERE data_version = $read`, in
 * one global order when there are several, and answers STALE when one matched no
 * row.
 *
 * @throws Problem CONTENTION after 10 lost tries.
 */
export async function compareAndSwap<T>(
  tx: Tx,
  attempt: () => Promise<T | typeof STALE>,
): Promise<T> {
  for (let tries = 1; tries <= TRIES_MAX; tries++) {
    const swapped = await attempt();
    if (swapped !== STALE) return swapped;
    await tx.restart();
  }
  throw new Problem(
    'CONTENTION',
    'Others kept changing the same rows. Nothing took effect; send the same request again.',
    {
      retryAfterSeconds: 1,
    },
  );
}
