import { RejectedError } from '../core/outcome.ts';
import type { Tx } from './transaction.ts';

/** What a swap answers that found another version than it had read. */
export const STALE = Symbol('stale');

/** After two lost tries the rows are locked first: many writers would otherwise starve those who read more. */
const OPTIMISTIC_TRIES = 2;

/** With the locks in hand a swap cannot lose; the bound is for work that reads without them. */
const TRIES_MAX = 10;

/**
 * L3: read, compute, compare-and-swap on `data_version`, and again from a fresh
 * read when somebody was faster. Runs inside the claimed transaction; what a lost
 * try has written is undone, the claim stays.
 *
 * `tryOnce` reads the rows, then updates each `… WHERE data_version = $read`, in
 * one global order when there are several, and answers STALE when one matched no
 * row. From the third try on it is told to read them `FOR NO KEY UPDATE`, in that
 * same order: under many writers, trying again alone starves those who read more.
 *
 * @throws RejectedError CONTENTION after 10 lost tries.
 */
export async function compareAndSwap<T>(
  tx: Tx,
  tryOnce: (isLocking: boolean) => Promise<T | typeof STALE>,
): Promise<T> {
  for (let tries = 1; tries <= TRIES_MAX; tries++) {
    const swapped = await tryOnce(tries > OPTIMISTIC_TRIES);
    if (swapped !== STALE) return swapped;
    await tx.restart();
  }
  throw new RejectedError({ kind: 'rejected', code: 'CONTENTION' });
}
