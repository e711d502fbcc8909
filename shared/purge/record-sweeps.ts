/**
 * The durable records' two deletes. There are two because the two states need
 * different guarantees: Completed is terminal, so a batch chosen beforehand stays
 * right; InProgress may be renewed or stolen at any moment, so it may not be chosen
 * beforehand at all.
 */
import type { Queryable, SweptBatch } from './marker-sweep.ts';

/**
 * Deletes at most `limit` records that were completed in [from, cutoff), oldest first.
 *
 * By `completed_at` and never by `created_at`: a claim made three days ago may be
 * stolen and completed just now, and without its response a retry would run again.
 * The form is that of the markers; see marker-sweep.ts.
 */
export async function sweepCompletedRecords(
  db: Queryable,
  {
    from,
    cutoff,
    limit,
  }: { readonly from: string; readonly cutoff: string; readonly limit: number },
): Promise<SweptBatch> {
  const { rows } = await db.query<{ rows: string; upTo: string | null }>(
    `WITH swept AS (
       DELETE FROM idempotency_records
        WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM idempotency_records
                 WHERE status = 'completed'
                   AND completed_at >= $1::timestamptz AND completed_at < $2::timestamptz
                 ORDER BY completed_at LIMIT $3
                 FOR UPDATE SKIP LOCKED))
          AND status = 'completed' AND completed_at < $2::timestamptz
        RETURNING completed_at)
     SELECT count(*) AS rows, max(completed_at)::text AS "upTo" FROM swept`,
    [from, cutoff, limit],
  );
  const [row] = rows;
  return { rows: Number(row?.rows ?? 0), upTo: row?.upTo ?? undefined };
}

/** Ours alone among the advisory locks of the database: "backstop, abandoned records". */
const ABANDONED_RECORDS_LOCK = 4_702_111_234_474_983_745n;

/**
 * Deletes the claims that nobody completed: one statement, unbatched, every condition
 * on the target itself. READ COMMITTED then checks them again on a row that was
 * renewed while this waited for it, and leaves it alone; `id IN (SELECT … LIMIT n)`
 * would delete the live row.
 *
 * Two of these at once under different plans deadlock (40P01), so only the one that
 * gets the lock does anything; the others delete nothing and come again. The lock is
 * the transaction's, which RDS Proxy does not pin.
 */
export async function sweepAbandonedRecords(db: Queryable, cutoff: string): Promise<number> {
  const { rows } = await db.query<{ rows: string }>(
    `WITH swept AS (
       DELETE FROM idempotency_records
        WHERE (SELECT pg_try_advisory_xact_lock($2))
          AND status = 'in_progress'
          AND lease_expires_at < clock_timestamp()
          AND created_at < $1::timestamptz
        RETURNING id)
     SELECT count(*) AS rows FROM swept`,
    [cutoff, ABANDONED_RECORDS_LOCK],
  );
  return Number(rows[0]?.rows ?? 0);
}

/** How long ago the oldest record that is still there expired; 0 when none has. */
export async function oldestExpiredRecordAgeSeconds(
  db: Queryable,
  keepMs: number,
): Promise<number> {
  const { rows } = await db.query<{ age: number | null }>(
    `SELECT extract(epoch FROM clock_timestamp() - least(
              (SELECT min(completed_at) FROM idempotency_records WHERE status = 'completed'),
              (SELECT min(created_at) FROM idempotency_records
                WHERE status = 'in_progress' AND lease_expires_at < clock_timestamp())
            ))::float8 - $1::float8 / 1000 AS age`,
    [keepMs],
  );
  return Math.max(0, rows[0]?.age ?? 0);
}
