import { meaningOf } from '../classify-error.ts';
import { fromMicros, toMicros } from '../microseconds.ts';
import type { Queryable } from '../pool.ts';

/** How long rows are kept, from the time that their age counts from. */
export interface Lifetime {
  /** What was promised; see tables.ts. */
  readonly retentionMs: number;
  /** Beyond it: the longest request, the oldest transaction and the clock skew together. */
  readonly marginMs: number;
}

export function lifetimeMs({ retentionMs, marginMs }: Lifetime): number {
  return retentionMs + marginMs;
}

/**
 * A table whose rows go by age, and the connections that it is swept on.
 *
 * The names stand in the SQL as they are; they are the product's own. `column` has
 * a plain index and never changes once a row may expire: a lease that can be renewed
 * needs the delete of abandoned.ts.
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
  readonly lifetime: Lifetime;
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

export function secondsOf({ since, until }: TimeSpan): number {
  return (Number(until) - Number(since)) / 1e6;
}

/** A span that holds about as many rows as were asked for, found by looking ahead. */
export interface Batch extends TimeSpan {
  /** There are as many rows as were asked for, or more. */
  readonly isFull: boolean;
  /** More rows than were asked for have the timestamp `since`. */
  readonly isSingleTimestamp: boolean;
}

/**
 * The locks of one batch. Of the markers, a second each, 64 hold a full batch from 800
 * rows a second on. A table with fewer rows needs wider locks (`lockSeconds`): with
 * too few rows under 64 of them, every batch is small and the round trips count.
 */
const LOCKS_MAX = 64;

/** The next batch of at most `rowsMax` rows in a span; undefined when it is empty. */
export async function findBatch(
  { db, name, column, lockSeconds }: ExpiringTable,
  span: TimeSpan,
  rowsMax: number,
): Promise<Batch | undefined> {
  const { rows } = await db.query<Batch & Record<string, unknown>>(
    `WITH first AS MATERIALIZED (
       SELECT ${column} AS since,
              least(${fromMicros('$2')},
                    date_bin('${lockSeconds} s', ${column}, to_timestamp(0))
                      + interval '${LOCKS_MAX * lockSeconds} seconds') AS until
         FROM ${name}
        WHERE ${column} >= ${fromMicros('$1')} AND ${column} < ${fromMicros('$2')}
        ORDER BY ${column} LIMIT 1),
     last AS MATERIALIZED (
       -- The first row that is too many; an index-only scan.
       SELECT since, until,
              (SELECT ${column} FROM ${name}
                WHERE ${column} >= since AND ${column} < until
                ORDER BY ${column} OFFSET $3::int LIMIT 1) AS next
         FROM first)
     SELECT ${toMicros('since')} AS since,
            ${toMicros(`greatest(coalesce(next, until), since + interval '1 microsecond')`)} AS until,
            next IS NOT NULL AS "isFull", coalesce(next = since, false) AS "isSingleTimestamp"
       FROM last`,
    [span.since, span.until, rowsMax],
  );
  return rows[0];
}

/** Longer than a batch of another purge, shorter than deadlock_timeout (1 s). */
const LOCK_TIMEOUT_MS = 100;

/**
 * Deletes a batch, unless another purge is at work under one of its locks. One
 * statement, one commit; the end of the span is what bounds it, under any plan.
 *
 * This is SKIP LOCKED one level up: not each row is locked and skipped, but each
 * span of `lockSeconds`. Two purges are never in the same one, so they never wait for each other
 * and cannot deadlock. Whoever else has locked a row (an older release, a person) is
 * waited for LOCK_TIMEOUT_MS and no longer: less than deadlock_timeout, so that it is
 * always the purge that gives way. The predicate stands on the target: a row that was
 * changed while this waited is looked at again.
 *
 * Rejected, with rows per second of the backend's CPU relative to the first of them
 * (Postgres 17, 300k rows in batches of 10k, medians of nine rounds; this: 3.7):
 * - `ctid IN (SELECT … LIMIT … FOR UPDATE SKIP LOCKED)` 1: a Tid Scan for each row,
 *   and under a nested loop that is rescanned it deletes past its LIMIT.
 * - `ctid = ANY (ARRAY(the same))`, with max(created_at) from RETURNING as the mark 1.6,
 *   with the mark of `findBatch` 1.8: each row is written twice, for the lock and for
 *   the delete (197 bytes of WAL against 141), and RETURNING fetches it once more.
 * - The same without FOR UPDATE 2.2 and 2.5: each row is found twice.
 * - This with its end from a CTE and a count from RETURNING, to save a round trip 2.7.
 * - This without its locks 4.1: two of them under different plans deadlock.
 * - Spans of so many seconds without a look ahead 4.5: no LIMIT, and rows may be dense.
 * - One DELETE of everything 5.8: a transaction as long as the backlog.
 * - `USING` the subquery: a hash join and a sequential scan of the table, 0.2.
 * - Slices by a hash of the user: every worker walks every row's index entry, 0.6.
 *
 * @param lockTimeoutMs how long to wait for a row that is not a purge's.
 * @returns the rows deleted; 0 when another purge is at work here.
 * @throws DatabaseError 55P03 when the wait was too long; P0001 when a longer retention was
 * promised since this purge read it.
 */
export async function deleteSpan(
  { db, name, column, lockSeconds, lifetime }: ExpiringTable,
  span: TimeSpan,
  lockTimeoutMs = LOCK_TIMEOUT_MS,
): Promise<number> {
  const lockMicros = lockSeconds * 1_000_000;
  const { rowCount } = await db.query(
    `DELETE FROM ${name}
      WHERE ${column} >= ${fromMicros('$1')} AND ${column} < ${fromMicros('$2')}
        AND (SELECT bool_and(pg_try_advisory_xact_lock('${name}'::regclass::oid::int,
                                                       (bucket % 2147483647)::int))
               FROM generate_series($1::bigint / ${lockMicros}, ($2::bigint - 1) / ${lockMicros}) AS bucket)
        AND (SELECT limit_lock_wait($3))
        AND (SELECT retention_holds('${name}', $4))`,
    [span.since, span.until, lockTimeoutMs, lifetime.retentionMs],
  );
  return rowCount ?? 0;
}

/**
 * Deletes at most `rowsMax` rows of a span, and skips those that anybody has locked.
 *
 * `= ANY (ARRAY(…))` makes the subquery an InitPlan, run once, so that its LIMIT holds
 * under any plan. The predicate stands on the target too, since a ctid alone may by
 * now be another row.
 */
export async function deleteUnlocked(
  { db, name, column, lifetime }: ExpiringTable,
  span: TimeSpan,
  rowsMax: number,
): Promise<number> {
  const isWithin = `${column} >= ${fromMicros('$1')} AND ${column} < ${fromMicros('$2')}`;
  const { rowCount } = await db.query(
    `DELETE FROM ${name}
      WHERE ctid = ANY (ARRAY(
              SELECT ctid FROM ${name}
               WHERE ${isWithin}
               ORDER BY ${column} LIMIT $3
               FOR UPDATE SKIP LOCKED))
        AND ${isWithin}
        AND (SELECT retention_holds('${name}', $4))`,
    [span.since, span.until, rowsMax, lifetime.retentionMs],
  );
  return rowCount ?? 0;
}

/** Did a statement end because it waited for somebody else's lock? */
export function isWaitTooLong(error: unknown): boolean {
  const meaning = meaningOf(error);
  return meaning === 'lock-timeout' || meaning === 'conflict';
}
