/**
 * The second of the records' two deletes. There are two because the two states need
 * different guarantees: Completed is terminal, so it goes by its age like a marker;
 * InProgress may be renewed or stolen at any moment, so it may not be chosen
 * beforehand at all.
 */
import { monotonicMs } from '../../core/clock.ts';
import type { Queryable } from '../pool.ts';
import { queryRow, type Remainder } from './backlog.ts';
import { isWaitTooLong, type Lifetime, lifetimeMs } from './batch.ts';
import type { SweepPlan, SweepReport } from './sweep.ts';

export const RECORDS = 'idempotency_records';

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
export async function deleteAbandoned(db: Queryable, lifetime: Lifetime): Promise<number> {
  const { rowCount } = await db.query(
    `DELETE FROM ${RECORDS}
      WHERE (SELECT pg_try_advisory_xact_lock($2))
        AND (SELECT retention_holds('${RECORDS}', $3))
        AND ${IS_ABANDONED}`,
    [lifetimeMs(lifetime), ABANDONED_RECORDS_LOCK, lifetime.retentionMs],
  );
  return rowCount ?? 0;
}

/** $1: how many milliseconds such a row is kept. */
const IS_ABANDONED = `status = 'in_progress'
        AND lease_expires_at < clock_timestamp()
        AND created_at < clock_timestamp() - $1::float8 * interval '1 millisecond'`;

/** The same as a sweep: one batch, and what is left of it. */
export async function sweepAbandoned(
  db: Queryable,
  lifetime: Lifetime,
  { remainingMs, onBatch }: Pick<SweepPlan, 'remainingMs' | 'onBatch'>,
): Promise<SweepReport> {
  const startedMonotonicMs = monotonicMs();
  const rows = remainingMs() > 0 ? await deleteAbandoned(db, lifetime).catch(noneYet) : 0;
  if (rows > 0) onBatch(rows, (monotonicMs() - startedMonotonicMs) / 1000);
  // Few claims are ever abandoned, and nobody counts how many will be.
  return { ...(await measureAbandoned(db, lifetime)), arrivalPerSecond: 0 };
}

/** Somebody holds one of the rows for longer than the delete waits: the next run comes again. */
function noneYet(error: unknown): number {
  if (isWaitTooLong(error)) return 0;
  throw error;
}

/** How many abandoned claims have expired by now. */
export async function measureAbandoned(db: Queryable, lifetime: Lifetime): Promise<Remainder> {
  const { leftRows, age } = await queryRow<{ leftRows: number; age: number | null }>(
    db,
    `SELECT count(*)::int AS "leftRows",
            extract(epoch FROM clock_timestamp() - min(created_at))::float8 - $1::float8 / 1000 AS age
       FROM ${RECORDS}
      WHERE ${IS_ABANDONED}`,
    [lifetimeMs(lifetime)],
  );
  return { leftRows, oldestExpiredAgeSeconds: Math.max(0, age ?? 0) };
}
