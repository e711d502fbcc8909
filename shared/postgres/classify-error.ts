import { DeadlineError, LeaseLostError, type Setback } from '../core/contract.ts';
import { isFaultOfOurs } from './pool.ts';
import { meaningOf } from './sqlstate.ts';
import { BeginError } from './transaction.ts';

/**
 * Why there is no connection. An unfit server is INTERNAL and not UNAVAILABLE: a client that is
 * told to try again each second mends nothing, and an alarm on outages would hide whose turn it
 * is. The key stays unused, so the same request works once the operator has mended it.
 */
export function setbackAtConnect(cause: unknown): Setback {
  return isFaultOfOurs(cause) ? { kind: 'threw', error: cause } : { kind: 'unavailable', cause };
}

/** Why step 0 failed. Nothing of this attempt can have taken effect. */
export function setbackAtClaim(cause: unknown): Setback {
  if (cause instanceof BeginError) return { kind: 'retry', because: 'connection', cause };
  switch (meaningOf(cause)) {
    case 'used':
      return { kind: 'already-exists' };
    case 'late':
      return { kind: 'late' };
    case 'waited':
      return { kind: 'in-flight' };
    case 'conflict':
      return { kind: 'retry', because: 'conflict', cause };
    case 'connection':
      return { kind: 'retry', because: 'connection', cause };
    default:
      return { kind: 'threw', error: cause };
  }
}

/**
 * Why an attempt ended whose claim was good.
 *
 * `queryError`, the first that the transaction itself met, decides whether to try
 * again: the work may have wrapped it, or met a socket error of its own that is
 * none of ours.
 */
export function setbackInWork(queryError: unknown, thrown: unknown): Setback {
  switch (queryError === undefined ? undefined : meaningOf(queryError)) {
    case 'waited':
      return { kind: 'contention', cause: queryError };
    case 'conflict':
      return { kind: 'retry', because: 'conflict', cause: queryError };
    case 'connection':
      return { kind: 'retry', because: 'connection', cause: queryError };
    default:
      if (thrown instanceof DeadlineError) return { kind: 'late' };
      if (thrown instanceof LeaseLostError)
        return { kind: 'retry', because: 'conflict', cause: thrown };
      return { kind: 'threw', error: thrown };
  }
}
