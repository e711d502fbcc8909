/**
 * The durable records' two deletes. There are two because the two states need
 * different guarantees: Completed is terminal, so it goes by its age like a marker;
 * InProgress may be renewed or stolen at any moment, so it may not be chosen
 * beforehand at all.
 */
import { monotonicMs } from '../../core/clock.ts';
import type { Queryable } from '../pool.ts';
import type { Remainder } from './backlog.ts';
import { isWaitTooLong } from './batch.ts';
import { type ExpiringTable, type Kept, keepMs } from './expiring-table.ts';
import { type SweepPlan, type SweepReport, UNSEEN } from './sweep.ts';

export const RECORDS = 'idempotency_records';

/**
 * By `completed_at` and never by `created_at`: a claim made three days ago may be
 * stolen and completed just now, and without its response a retry would run again.
 * What is in progress has no `completed_at`, and is in no span of it.
 */
export function completedRecords(db: Queryable, kept: Kept): ExpiringTable {
  // Receipts are few beside claims: in a second there may be none.
  return { db, name: RECORDS, column: 'completed_at', lockSeconds: 3600, kept };
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
export async function deleteAbandonedRecords(db: Queryable, kept: Kept): Promise<number> {
  const { rowCount } = await db.query(
    `DELETE FROM ${RECORDS}
      WHERE (SELECT pg_try_advisory_xact_lock($2))
        AND (SELECT retention_holds('${RECORDS}', $3))
        AND ${IS_ABANDONED}`,
    [keepMs(kept), ABANDONED_RECORDS_LOCK, kept.retentionMs],
  );
  return rowCount ?? 0;
}

/** $1: how many milliseconds such a row is kept. */
const IS_ABANDONED = `status = 'in_progress'
        AND lease_expires_at < clock_timestamp()
        AND created_at < clock_timestamp() - $1::float8 * interval '1 millisecond'`;

/** The same as a sweep: one batch, and what is left of it. */
export async function sweepAbandonedRecords(
  db: Queryable,
  kept: Kept,
  { remainingMs, onBatch }: Pick<SweepPlan, 'remainingMs' | 'onBatch'>,
): Promise<SweepReport> {
  const startedMs = monotonicMs();
  const rows = remainingMs() > 0 ? await deleteAbandonedRecords(db, kept).catch(noneYet) : 0;
  const seconds = (monotonicMs() - startedMs) / 1000;
  if (rows > 0) onBatch(rows);
  return {
    rows,
    batchDurationsSeconds: rows > 0 ? [seconds] : [],
    rowsPerSecond: rows > 0 ? rows / seconds : 0,
    // Few claims are ever abandoned, and nobody counts how many will be.
    arrivalPerSecond: 0,
    ...(await measureAbandoned(db, kept).then(
      (remainder) => ({ ...remainder, error: undefined }),
      (error: unknown) => ({ ...UNSEEN, error }),
    )),
  };
}

/** Somebody holds one of the rows for longer than it is waited for: the next run comes again. */
function noneYet(error: unknown): number {
  if (isWaitTooLong(error)) return 0;
  throw error;
}

/** How many abandoned claims have expired by now. */
export async function measureAbandoned(db: Queryable, kept: Kept): Promise<Remainder> {
  const { rows } = await db.query<{ rows: number; age: number | null }>(
    `SELECT count(*)::int AS rows,
            extract(epoch FROM clock_timestamp() - min(created_at))::float8 - $1::float8 / 1000 AS age
       FROM ${RECORDS}
      WHERE ${IS_ABANDONED}`,
    [keepMs(kept)],
  );
  const { rows: leftRows, age } = rows[0] as (typeof rows)[number];
  return { leftRows, oldestExpiredAgeSeconds: Math.max(0, age ?? 0) };
}
