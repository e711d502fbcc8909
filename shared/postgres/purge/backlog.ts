import { fromMicros, toMicros } from '../microseconds.ts';
import { type ExpiringTable, keepMs, type TimeSpan } from './expiring-table.ts';

/** One part of the time that has expired, the unit of work of a loop. */
export interface Slice {
  /** The low-water mark: nothing before it is left, but for what is in doubt. */
  from: string;
  readonly until: string;
  readonly seconds: number;
  isDrained: boolean;
  /** Somebody else than a purge holds rows in here: see batch.ts. */
  isContended: boolean;
  /** Where rows of others were skipped for the first time. */
  doubtedFrom: string | undefined;
}

export interface Horizon {
  /** What was created before this has expired, for this run. */
  readonly cutoff: string;
  /** In the order of time, without a gap from the oldest row to the cutoff. */
  readonly slices: Slice[];
}

/**
 * The cutoff on Postgres' clock, and the time before it that still has rows in it,
 * cut into about so many slices. They end where locks end, as the spans of a
 * batch do. It looks from the beginning of time on, in each run, so that what was
 * committed late is found.
 */
export async function findHorizon(table: ExpiringTable, sliceCount: number): Promise<Horizon> {
  const { rows } = await table.db.query<{ cutoff: string; seconds: number; edges: string[] }>(
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
     SELECT ${toMicros('cutoff')} AS cutoff, seconds::float8,
            ARRAY(SELECT ${toMicros('edge')}
                    FROM generate_series(oldest, newest, seconds * interval '1 second') AS edge
                   ORDER BY edge) AS edges
       FROM cut`,
    [keepMs(table.kept), sliceCount],
  );
  const { cutoff, seconds, edges } = rows[0] as (typeof rows)[number];
  const slices = edges.map((from, index) => ({
    from,
    until: edges[index + 1] ?? cutoff,
    seconds,
    isDrained: false,
    isContended: false,
    doubtedFrom: undefined,
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
 * What had expired by the cutoff and is still there. It looks where the run has not
 * seen to it that nothing is: to walk all the dead index entries that the run itself
 * has left behind would take half as long as its deletes.
 */
export async function measureRemainder(
  table: ExpiringTable,
  cutoff: string,
  unseen: readonly TimeSpan[],
): Promise<Remainder> {
  const { rows } = await table.db.query<{ counted: number; age: number | null }>(
    `WITH seen AS MATERIALIZED (
       SELECT sum(rows)::int AS counted, min(oldest) AS oldest
         FROM (SELECT ${fromMicros('low')} AS since, ${fromMicros('high')} AS until
                 FROM unnest($1::bigint[], $2::bigint[]) AS micros (low, high)) AS span,
              LATERAL (SELECT count(*) AS rows, min(at) AS oldest
                         FROM (SELECT ${table.column} AS at FROM ${table.name}
                                WHERE ${table.column} >= since AND ${table.column} < until
                                ORDER BY ${table.column} LIMIT ${COUNTED_ROWS_MAX + 1}) AS r) AS s)
     SELECT coalesce(counted, 0) AS counted,
            extract(epoch FROM clock_timestamp() - coalesce(oldest,
              -- What has expired since the cutoff is behind the time as well.
              (SELECT ${table.column} FROM ${table.name}
                WHERE ${table.column} >= ${fromMicros('$3')} ORDER BY ${table.column} LIMIT 1)))::float8
              - $4::float8 / 1000 AS age
       FROM seen`,
    [
      unseen.map(({ since }) => since),
      unseen.map(({ until }) => until),
      cutoff,
      keepMs(table.kept),
    ],
  );
  const { counted, age } = rows[0] as (typeof rows)[number];
  const leftRows =
    counted <= COUNTED_ROWS_MAX ? counted : Math.max(counted, await estimateRows(table, cutoff));
  return { leftRows, oldestExpiredAgeSeconds: Math.max(0, age ?? 0) };
}

/** What has expired by now. */
export async function measureBacklog(table: ExpiringTable): Promise<Remainder> {
  const { cutoff, slices } = await findHorizon(table, 1);
  const spans = slices.map(({ from, until }) => ({ since: from, until }));
  return measureRemainder(table, cutoff, spans);
}

/**
 * About how many rows are older, from a thousand pages picked at random: a few
 * milliseconds whatever the table's size, and right without statistics and for rows
 * that all bear one time, where the planner's estimate is not.
 */
async function estimateRows(table: ExpiringTable, cutoff: string): Promise<number> {
  const percent = `least(100, 1000 * 100 * 8192.0 / greatest(1, pg_relation_size('${table.name}')))`;
  const { rows } = await table.db.query<{ rows: number }>(
    `SELECT (count(*) * 100 / ${percent})::float8 AS rows
       FROM ${table.name} TABLESAMPLE SYSTEM (${percent})
      WHERE ${table.column} < ${fromMicros('$1')}`,
    [cutoff],
  );
  return Math.round((rows[0] as { rows: number }).rows);
}

/**
 * How many rows expire in a second, on average over the minute to come: they are
 * all there already.
 */
export async function measureArrival(table: ExpiringTable, cutoff: string): Promise<number> {
  const { rows } = await table.db.query<{ rows: number; seconds: number | null }>(
    `SELECT count(*)::float8 AS rows,
            extract(epoch FROM max(at) - ${fromMicros('$1')})::float8 AS seconds
       FROM (SELECT ${table.column} AS at FROM ${table.name}
              WHERE ${table.column} >= ${fromMicros('$1')}
                AND ${table.column} < ${fromMicros('$1')} + interval '60 seconds'
              ORDER BY ${table.column} LIMIT ${COUNTED_ROWS_MAX}) AS r`,
    [cutoff],
  );
  const { rows: counted, seconds } = rows[0] as (typeof rows)[number];
  const spanSeconds = counted < COUNTED_ROWS_MAX ? 60 : Math.max(seconds ?? 0, 0.001);
  return counted / spanSeconds;
}
