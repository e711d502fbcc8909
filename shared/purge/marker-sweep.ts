import type { QueryResult, QueryResultRow } from 'pg';

export interface Queryable {
  query<Row extends QueryResultRow>(text: string, values?: unknown[]): Promise<QueryResult<Row>>;
}

export interface SweptBatch {
  readonly rows: number;
  /** The latest created_at deleted, as Postgres spells it; undefined when there was none. */
  readonly upTo: string | undefined;
}

/**
 * The instant before which a marker has expired: retention and margin before now,
 * on Postgres' clock. A time stays text on its way through here, since a Date
 * would lose the microseconds.
 */
export async function markerCutoff(db: Queryable, keepMs: number): Promise<string> {
  const { rows } = await db.query<{ cutoff: string }>(
    `SELECT (clock_timestamp() - $1::float8 * interval '1 millisecond')::text AS cutoff`,
    [keepMs],
  );
  return (rows[0] as { cutoff: string }).cutoff;
}

/**
 * Deletes at most `limit` markers that were created in [from, cutoff), oldest first,
 * and skips those that another worker has locked. One statement, so one commit.
 *
 * `ctid = ANY (ARRAY(…))` makes the subquery an InitPlan and one Tid Scan under any
 * statistics; `ctid IN (SELECT …)` probes row by row, and under a nested loop
 * deletes past its LIMIT. `from` is the low-water mark: without it each batch
 * walks the dead index entries of all the batches before. The predicate stands on
 * the target too, since a ctid alone may by now be another row.
 */
export async function sweepMarkers(
  db: Queryable,
  {
    from,
    cutoff,
    limit,
  }: { readonly from: string; readonly cutoff: string; readonly limit: number },
): Promise<SweptBatch> {
  const { rows } = await db.query<{ rows: string; upTo: string | null }>(
    `WITH swept AS (
       DELETE FROM player_mutation_idempotency
        WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM player_mutation_idempotency
                 WHERE created_at >= $1::timestamptz AND created_at < $2::timestamptz
                 ORDER BY created_at LIMIT $3
                 FOR UPDATE SKIP LOCKED))
          AND created_at < $2::timestamptz
        RETURNING created_at)
     SELECT count(*) AS rows, max(created_at)::text AS "upTo" FROM swept`,
    [from, cutoff, limit],
  );
  const [row] = rows;
  return { rows: Number(row?.rows ?? 0), upTo: row?.upTo ?? undefined };
}

/** How long ago the oldest marker that is still there expired; 0 when none has. */
export async function oldestExpiredAgeSeconds(db: Queryable, keepMs: number): Promise<number> {
  const { rows } = await db.query<{ age: number | null }>(
    `SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8 - $1::float8 / 1000 AS age
       FROM player_mutation_idempotency`,
    [keepMs],
  );
  return Math.max(0, rows[0]?.age ?? 0);
}
