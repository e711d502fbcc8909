/** What has expired: cut into slices for a sweep, and counted for its report. */
import type { QueryResultRow } from 'pg';
import { fromMicros, toMicros } from '../microseconds.ts';
import type { Queryable } from '../pool.ts';
import { type ExpiringTable, lifetimeMs, type TimeSpan } from './batch.ts';

/** One part of the time that has expired, the unit of work of a loop. Drained: `since` is `until`. */
export interface Slice extends TimeSpan {
  /** The low-water mark: nothing before it is left, except for skipped rows. */
  since: string;
  /** Somebody else than a purge has locked rows in here: see batch.ts. */
  hasForeignLocks: boolean;
  /** From here on, locked rows may have been skipped. */
  skippedFrom: string | undefined;
}

export interface Backlog {
  /** What was created before this has expired, for this run. */
  readonly cutoff: string;
  /** In the order of time, without a gap from the oldest row to the cutoff. */
  readonly slices: readonly Slice[];
}

/**
 * The cutoff on Postgres' clock, and the time before it that still has rows in it,
 * cut into about so many slices. They end where locks end, as the spans of a
 * batch do. It looks from the beginning of time on, in each run, so that what was
 * committed late is found.
 */
export async function findBacklog(table: ExpiringTable, sliceCount: number): Promise<Backlog> {
  const { cutoff, edges } = await queryRow<{ cutoff: string; edges: string[] }>(
    table.db,
    `WITH now AS MATERIALIZED (
       SELECT clock_timestamp() - $1::float8 * interval '1 millisecond' AS cutoff),
     expired AS MATERIALIZED (
       SELECT cutoff,
              (SELECT date_bin('${table.lockSeconds} s', ${table.column}, to_timestamp(0)) FROM ${table.name}
                WHERE ${table.column} < cutoff ORDER BY ${table.column} LIMIT 1) AS oldest,
              (SELECT ${table.column} FROM ${table.name}
                WHERE ${table.column} < cutoff ORDER BY ${table.column} DESC LIMIT 1) AS newest
         FROM now),
     cut AS (
       SELECT *, ${table.lockSeconds}
               * greatest(1, ceil(extract(epoch FROM newest - oldest) / $2::int / ${table.lockSeconds})) AS seconds
         FROM expired)
     SELECT ${toMicros('cutoff')} AS cutoff,
            ARRAY(SELECT ${toMicros('edge')}
                    FROM generate_series(oldest, newest, seconds * interval '1 second') AS edge
                   ORDER BY edge) AS edges
       FROM cut`,
    [lifetimeMs(table.lifetime), sliceCount],
  );
  const slices = edges.map((since, index) => ({
    since,
    until: edges[index + 1] ?? cutoff,
    hasForeignLocks: false,
    skippedFrom: undefined,
  }));
  return { cutoff, slices };
}

export interface Remainder {
  /** Exact up to some ten thousand, an estimate beyond. */
  readonly leftRows: number;
  /** How long ago the oldest row that is still there expired, by now; 0 when none has. */
  readonly oldestExpiredAgeSeconds: number;
}

/** Counted one by one up to here; half a second of claims at 20,000 a second. */
const COUNTED_ROWS_MAX = 10_000;

/**
 * What had expired by the cutoff and is still there. It looks only where the sweep has not
 * seen that nothing is left: to walk all the dead index entries that the sweep itself
 * leaves behind would take half as long as its deletes.
 */
export async function measureRemainder(
  table: ExpiringTable,
  { cutoff, slices }: Backlog,
): Promise<Remainder> {
  const { counted, age } = await queryRow<{ counted: number; age: number | null }>(
    table.db,
    `SELECT count(*)::int AS counted,
            extract(epoch FROM clock_timestamp() - coalesce(min(at),
              -- What has expired since the cutoff is behind the time as well.
              (SELECT ${table.column} FROM ${table.name}
                WHERE ${table.column} >= ${fromMicros('$3')} ORDER BY ${table.column} LIMIT 1)))::float8
              - $4::float8 / 1000 AS age
       FROM (SELECT at
               FROM unnest($1::bigint[], $2::bigint[]) AS slice (since, until),
                    LATERAL (SELECT ${table.column} AS at FROM ${table.name}
                              WHERE ${table.column} >= ${fromMicros('since')}
                                AND ${table.column} < ${fromMicros('until')}
                              ORDER BY ${table.column} LIMIT ${COUNTED_ROWS_MAX + 1}) AS r
              LIMIT ${COUNTED_ROWS_MAX + 1}) AS seen`,
    [
      slices.map(({ since, skippedFrom }) => skippedFrom ?? since),
      slices.map(({ until }) => until),
      cutoff,
      lifetimeMs(table.lifetime),
    ],
  );
  const leftRows =
    counted <= COUNTED_ROWS_MAX ? counted : Math.max(counted, await estimateRows(table, cutoff));
  return { leftRows, oldestExpiredAgeSeconds: Math.max(0, age ?? 0) };
}

/** What has expired by now. */
export async function measureBacklog(table: ExpiringTable): Promise<Remainder> {
  return measureRemainder(table, await findBacklog(table, 1));
}

/**
 * About how many rows are older, from a thousand pages picked at random: a few
 * milliseconds whatever the table's size, and right without statistics and for rows
 * that all bear one time, where the planner's estimate is not.
 */
async function estimateRows(table: ExpiringTable, cutoff: string): Promise<number> {
  const percent = `least(100, 1000 * 100 * 8192.0 / greatest(1, pg_relation_size('${table.name}')))`;
  const { rows } = await queryRow<{ rows: number }>(
    table.db,
    `SELECT round(count(*) * 100 / ${percent})::float8 AS rows
       FROM ${table.name} TABLESAMPLE SYSTEM (${percent})
      WHERE ${table.column} < ${fromMicros('$1')}`,
    [cutoff],
  );
  return rows;
}

/**
 * How many rows expire in a second, on average over the minute to come: they are
 * all there already.
 */
export async function measureArrival(table: ExpiringTable, cutoff: string): Promise<number> {
  const { perSecond } = await queryRow<{ perSecond: number }>(
    table.db,
    `SELECT count(*)::float8
              / CASE WHEN count(*) < ${COUNTED_ROWS_MAX} THEN 60
                     ELSE greatest(0.001, extract(epoch FROM max(at) - ${fromMicros('$1')})::float8)
                END AS "perSecond"
       FROM (SELECT ${table.column} AS at FROM ${table.name}
              WHERE ${table.column} >= ${fromMicros('$1')}
                AND ${table.column} < ${fromMicros('$1')} + interval '60 seconds'
              ORDER BY ${table.column} LIMIT ${COUNTED_ROWS_MAX}) AS r`,
    [cutoff],
  );
  return perSecond;
}

/** The row of a statement that answers exactly one. */
export async function queryRow<Row extends QueryResultRow>(
  db: Queryable,
  text: string,
  values: unknown[],
): Promise<Row> {
  const { rows } = await db.query<Row>(text, values);
  const [row] = rows;
  if (row === undefined || rows.length > 1)
    throw new Error(`${rows.length} rows, not one: ${text}`);
  return row;
}
