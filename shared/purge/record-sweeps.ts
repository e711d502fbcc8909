/**
 * The durable records' two deletes. There are two because the two states need
 * different guarantees: Completed is terminal, so it goes by its age like a marker;
 * InProgress may be renewed or stolen at any moment, so it may not be chosen
 * beforehand at all.
 */
import { monotonicMs } from '../clock.ts';
import type { Queryable } from '../postgres/pool.ts';
import type { ExpiringTable } from './expiring-table.ts';
import type { SweepReport } from './sweep.ts';

/**
 * By `completed_at` and never by `created_at`: a claim made three days ago may be
 * stolen and completed just now, and without its response a retry would run again.
 * What is in progress has no `completed_at`, and is in no span of it.
 */
export function completedRecords(db: Queryable, keepMs: number): ExpiringTable {
  // Receipts are few beside claims: in a second there may be none.
  return { db, name: 'idempotency_records', column: 'completed_at', lockSeconds: 3600, keepMs };
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
 *
 * @returns the rows deleted.
 */
export async function deleteAbandonedRecords(db: Queryable, keepMs: number): Promise<number> {
  const { rowCount } = await db.query(
    `DELETE FROM idempotency_records
      WHERE (SELECT pg_try_advisory_xact_lock($2))
        AND status = 'in_progress'
        AND lease_expires_at < clock_timestamp()
        AND created_at < clock_timestamp() - $1::float8 * interval '1 millisecond'`,
    [keepMs, ABANDONED_RECORDS_LOCK],
  );
  return rowCount ?? 0;
}

/** The same as a sweep: one batch, and what is left of it. */
export async function sweepAbandonedRecords(
  db: Queryable,
  keepMs: number,
  remainingMs: () => number,
): Promise<SweepReport> {
  const startedMs = monotonicMs();
  const rows = remainingMs() > 0 ? await deleteAbandonedRecords(db, keepMs) : 0;
  const seconds = (monotonicMs() - startedMs) / 1000;
  const { rows: left } = await db.query<{ rows: number; age: number | null }>(
    `SELECT count(*)::int AS rows,
            extract(epoch FROM clock_timestamp() - min(created_at))::float8 - $1::float8 / 1000 AS age
       FROM idempotency_records
      WHERE status = 'in_progress' AND lease_expires_at < clock_timestamp()
        AND created_at < clock_timestamp() - $1::float8 * interval '1 millisecond'`,
    [keepMs],
  );
  return {
    rows,
    batchDurationsSeconds: rows > 0 ? [seconds] : [],
    leftRows: left[0]?.rows ?? 0,
    oldestExpiredAgeSeconds: Math.max(0, left[0]?.age ?? 0),
    rowsPerSecond: rows > 0 ? rows / seconds : 0,
    // Few claims are ever abandoned, and nobody counts how many will be.
    arrivalPerSecond: 0,
    error: undefined,
  };
}
