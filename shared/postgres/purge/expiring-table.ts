import type { Queryable } from '../pool.ts';

/** How long rows are kept, from the time that their age counts from. */
export interface Kept {
  /** What was promised; see retentions.ts. */
  readonly retentionMs: number;
  /** Beyond it: the longest request, the oldest transaction and the skew together. */
  readonly marginMs: number;
}

/**
 * A table whose rows go by age, and the connections that it is swept on.
 *
 * The names stand in the SQL as they are; they are the product's own. `column` has
 * a plain index and never changes once a row may expire: whatever has a lease that
 * can be renewed is not for these sweeps.
 */
export interface ExpiringTable {
  readonly db: Queryable;
  readonly name: string;
  /** The timestamptz that the age counts from. */
  readonly column: string;
  /**
   * How much time one lock covers; the same for all purges of this table. Wide enough
   * that a full batch lies in few of them, narrow enough for several workers to find
   * room: about what holds some thousand rows.
   */
  readonly lockSeconds: number;
  readonly kept: Kept;
}

export function keepMs({ retentionMs, marginMs }: Kept): number {
  return retentionMs + marginMs;
}

/**
 * A span of time, [since, until), in microseconds since 1970 as Postgres writes a bigint.
 * A Date would lose the microseconds, and a timestamptz written as text is read as another
 * time under every DateStyle but ISO: "IST" is Israel's time there.
 */
export interface TimeSpan {
  readonly since: string;
  readonly until: string;
}

export const MARKERS = 'player_mutation_idempotency';

export function markerTable(db: Queryable, kept: Kept): ExpiringTable {
  return { db, name: MARKERS, column: 'created_at', lockSeconds: 1, kept };
}
