import type { Queryable } from '../postgres/pool.ts';

/** How long rows of a table are kept for replays, and whose word that is. */
export interface Retention {
  readonly table: string;
  readonly retentionMs: number;
  /** `promised`: `idempotency_retentions` says more than our own setting; `configured`: it does not. */
  readonly source: 'promised' | 'configured';
}

/** The table that the stores' connections raise; see 0007_retentions.sql. */
export const RETENTIONS = 'idempotency_retentions';

/**
 * What was promised for each table that expires, in milliseconds.
 *
 * @throws Error when there is no telling: then nothing may be deleted.
 */
export async function readPromises(db: Queryable): Promise<ReadonlyMap<string, number>> {
  try {
    const { rows } = await db.query<{ table: string; ms: string }>(
      `SELECT table_name AS table, retention_ms AS ms FROM ${RETENTIONS} ORDER BY 1`,
    );
    return new Map(rows.map(({ table, ms }) => [table, Number(ms)]));
  } catch (cause) {
    throw explained(cause);
  }
}

function explained(cause: unknown): unknown {
  const why = 'so the purge cannot know what was promised, and deletes nothing';
  switch ((cause as { code?: unknown }).code) {
    case '42P01':
      return new Error(
        `This database has no table ${RETENTIONS}, ${why}: its schema is older than this release. Run the migrations first.`,
        { cause },
      );
    case '42501':
      return new Error(
        `The purge's role may not read ${RETENTIONS}, ${why}. Say, as the owner: GRANT SELECT ON ${RETENTIONS} TO backstop_purge (or whatever role it is).`,
        { cause },
      );
    default:
      return cause;
  }
}

/** The longer of the two: neither may delete what the other has promised. */
export function retentionOf(table: string, promisedMs: number, configuredMs: number): Retention {
  return promisedMs > configuredMs
    ? { table, retentionMs: promisedMs, source: 'promised' }
    : { table, retentionMs: configuredMs, source: 'configured' };
}
