import type { Queryable } from '../postgres/pool.ts';

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
  /** Retention and margin: how long a row is kept from that time on. */
  readonly keepMs: number;
}

/**
 * A span of time, [since, until), as Postgres spells its ends. A time stays text on
 * its way through here: a Date would lose the microseconds.
 */
export interface TimeSpan {
  readonly since: string;
  readonly until: string;
}

export function markerTable(db: Queryable, keepMs: number): ExpiringTable {
  return { db, name: 'player_mutation_idempotency', column: 'created_at', lockSeconds: 1, keepMs };
}
