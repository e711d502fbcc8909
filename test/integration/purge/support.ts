import pg from 'pg';
import { onTestFinished } from 'vitest';
import { type Queryable, statementsOn } from '../../../shared/postgres/pool.ts';
import type { ExpiringTable, Lifetime } from '../../../shared/postgres/purge/batch.ts';
import { type SweepPlan, sweepExpired } from '../../../shared/postgres/purge/sweep.ts';
import { markerTable } from '../../../shared/postgres/purge/tables.ts';
import { noThrottle } from '../../../shared/postgres/purge/throttle.ts';
import type { TestDatabase } from '../../support/database.ts';

/** Retention 1 h and margin 5 min, by default. */
export const KEPT_MINUTES = 65;
export const KEPT: Lifetime = { retentionMs: 3_600_000, marginMs: 300_000 };

/** Rows k1 to kN, k1 the oldest and at a whole second, spread over so many seconds. */
export async function insertMarkers(
  db: TestDatabase,
  count: number,
  { ageMinutes = KEPT_MINUTES + 10, spreadSeconds = 0, prefix = 'k' } = {},
): Promise<void> {
  await db.sql(
    `INSERT INTO player_mutation_idempotency
     SELECT 'purged', $2 || n,
            date_trunc('second', now()) - $3::float8 * interval '1 minute' + (n - 1) * $4::float8 / $1::int * interval '1 second'
       FROM generate_series(1, $1::int) n`,
    [count, prefix, ageMinutes, spreadSeconds],
  );
}

export async function markersLeft(db: TestDatabase): Promise<string[]> {
  const rows = await db.sql<{ id: string }>(
    'SELECT request_id AS id FROM player_mutation_idempotency ORDER BY 1',
  );
  return rows.map(({ id }) => id);
}

export async function countLeft(db: TestDatabase): Promise<number> {
  const rows = await db.sql<{ count: number }>(
    'SELECT count(*)::int FROM player_mutation_idempotency',
  );
  return rows[0]?.count ?? Number.NaN;
}

/** Deadlocks that anybody in this database has met. The statistics come when a session ends. */
export async function countDeadlocks(db: TestDatabase): Promise<number> {
  const rows = await db.sql<{ deadlocks: number }>(
    'SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()',
  );
  return rows[0]?.deadlocks ?? Number.NaN;
}

export interface PurgeConnections extends Queryable {
  readonly pool: pg.Pool;
  /** How many there are now. */
  open(): number;
}

/** Connections in the purge's own role, `options` as `-c name=value`. */
export function purgePool(db: TestDatabase, max = 1, options = ''): PurgeConnections {
  const pool = new pg.Pool({ connectionString: db.purgeUrl, max, options });
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  onTestFinished(() => pool.end());
  return { ...statementsOn(pool), pool, open: () => pool.totalCount };
}

export function markersOn(connections: Queryable): ExpiringTable {
  return markerTable(connections, KEPT);
}

/** A sweep at full speed and without an end, unless told otherwise, and what it deleted. */
export async function sweep(
  connections: Queryable,
  { table = markersOn(connections), ...plan }: Partial<SweepPlan> & { table?: ExpiringTable } = {},
) {
  const batchRows: number[] = [];
  const report = await sweepExpired(table, {
    concurrency: 1,
    batchRowsMax: 1000,
    createThrottle: () => noThrottle,
    remainingMs: () => Number.POSITIVE_INFINITY,
    ...plan,
    onBatch: (rows) => batchRows.push(rows),
  });
  return { ...report, rows: sum(batchRows), batchRows };
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

export interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** The same connections, with each statement remembered, or kept from being sent. */
export function spiedOn(
  connections: Queryable,
  beforeEach: (statement: Statement) => Promise<void> | void,
): Queryable {
  return {
    query: async (text, values = []) => {
      await beforeEach({ text, values });
      return connections.query(text, values);
    },
  };
}

export const isDelete = ({ text }: Statement): boolean => text.includes('DELETE');
