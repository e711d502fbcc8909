/**
 * The process' clock, and the only place that reads it. It decides nothing that
 * two processes must agree on: those times are Postgres' (or the store's) own.
 */

/** Milliseconds since the epoch. Follows real time over a frozen and thawed Lambda. */
export function nowMs(): number {
  return Date.now();
}

/** Milliseconds of a clock that never jumps, for durations within one invocation. */
export function monotonicMs(): number {
  return performance.now();
}
