import { needsPart } from '../greeting.ts';
import type { Queryable } from '../pool.ts';

/** How long rows of a table are kept for replays, and whose word that is. */
export interface Retention {
  readonly table: string;
  readonly retentionMs: number;
  /** `promised`: `idempotency_retentions` says more than our own setting; `configured`: it does not. */
  readonly source: 'promised' | 'configured';
}

/** The table that the stores' connections raise; see 0003_retentions.sql. */
export const RETENTIONS = 'idempotency_retentions';

/** What was promised for each table that expires, in milliseconds. */
export async function readPromises(db: Queryable): Promise<ReadonlyMap<string, number>> {
  const { rows } = await db.query<{ table: string; ms: string }>(
    `SELECT table_name AS table, retention_ms AS ms FROM ${RETENTIONS} ORDER BY 1`,
  );
  return new Map(rows.map(({ table, ms }) => [table, Number(ms)]));
}

/** Without these nobody can tell what was promised, so nothing may be deleted at all. */
export const PURGE_NEEDS = needsPart('purge', {
  tables: { [RETENTIONS]: ['SELECT'] },
  functions: ['retention_holds(text, bigint)'],
  migration: '0003_retentions',
});

/** The longer of the two: neither may delete what the other has promised. */
export function retentionOf(table: string, promisedMs: number, configuredMs: number): Retention {
  return promisedMs > configuredMs
    ? { table, retentionMs: promisedMs, source: 'promised' }
    : { table, retentionMs: configuredMs, source: 'configured' };
}
