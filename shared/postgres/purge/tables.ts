/**
 * The tables whose rows expire, how long each keeps them, and what sweeps them: the one list of
 * the scheduled purge, of the command and of its dry run.
 */
import { needsPart } from '../connection-check.ts';
import type { Queryable } from '../pool.ts';
import { measureAbandoned, RECORDS, sweepAbandoned } from './abandoned.ts';
import { measureBacklog, type Remainder } from './backlog.ts';
import type { ExpiringTable, Lifetime } from './batch.ts';
import { type SweepPlan, type SweepReport, sweepExpired } from './sweep.ts';

export const MARKERS = 'player_mutation_idempotency';

export function markerTable(db: Queryable, lifetime: Lifetime): ExpiringTable {
  return { db, name: MARKERS, column: 'created_at', lockSeconds: 1, lifetime };
}

/**
 * By `completed_at` and never by `created_at`: a claim made three days ago may be
 * stolen and completed just now, and without its response a retry would run again.
 * What is in progress has no `completed_at`, and is in no span of it.
 */
export function completedRecords(db: Queryable, lifetime: Lifetime): ExpiringTable {
  // Receipts are few beside claims: in a second there may be none.
  return { db, name: RECORDS, column: 'completed_at', lockSeconds: 3600, lifetime };
}

/** How long rows of a table are kept for replays, and who says so. */
export interface Retention {
  readonly table: string;
  readonly retentionMs: number;
  /** `promised`: `idempotency_retentions` says more than our own setting; `configured`: it does not. */
  readonly source: 'promised' | 'configured';
}

/** The table that the stores' connections raise; see 0003_retentions.sql. */
const RETENTIONS = 'idempotency_retentions';

/** Without these the purge cannot know what was promised, so it may not delete at all. */
export const PURGE_NEEDS = needsPart('purge', {
  tables: { [RETENTIONS]: ['SELECT'] },
  functions: ['retention_holds(text, bigint)'],
  migration: '0003_retentions',
});

/** Our own settings; what the database says counts where it is more. */
export interface RetentionSettings {
  readonly markerRetentionMs: number;
  readonly recordRetentionMs: number;
  readonly marginMs: number;
}

/** One kind of row that expires. */
export interface Sweep {
  readonly name: string;
  run(db: Queryable, plan: SweepPlan): Promise<SweepReport>;
  /** What of it has expired by now. */
  measure(db: Queryable): Promise<Remainder>;
}

export interface SweepList {
  readonly retentions: readonly Retention[];
  readonly sweeps: readonly Sweep[];
}

/**
 * The sweeps of this database, by what is promised now: to be asked anew for each run. It follows
 * `idempotency_retentions`, so that no table that expires is left out silently: what is not as it
 * should be is in the list as a sweep that fails, and keeps no other from its work.
 */
export async function listSweeps(db: Queryable, settings: RetentionSettings): Promise<SweepList> {
  let promises: ReadonlyMap<string, number>;
  try {
    promises = await readPromises(db);
  } catch (error) {
    return { retentions: [], sweeps: [failing(RETENTIONS, error)] };
  }
  const configured = new Map([
    [MARKERS, settings.markerRetentionMs],
    [RECORDS, settings.recordRetentionMs],
  ]);
  const retentions: Retention[] = [];
  const sweeps: Sweep[] = [];
  for (const table of new Set([...configured.keys(), ...promises.keys()])) {
    const configuredMs = configured.get(table);
    const promisedMs = promises.get(table);
    if (configuredMs === undefined) {
      sweeps.push(failing(table, new Error(unknown(table))));
    } else if (promisedMs === undefined) {
      sweeps.push(failing(table, new Error(noRow(table))));
    } else {
      // The longer of the two: neither may delete what the other has promised.
      const retentionMs = Math.max(promisedMs, configuredMs);
      const source = promisedMs > configuredMs ? 'promised' : 'configured';
      retentions.push({ table, retentionMs, source });
      sweeps.push(...sweepsOf(table, { retentionMs, marginMs: settings.marginMs }));
    }
  }
  return { retentions, sweeps };
}

/** What was promised for each table that expires, in milliseconds. */
async function readPromises(db: Queryable): Promise<ReadonlyMap<string, number>> {
  const { rows } = await db.query<{ table: string; ms: string }>(
    `SELECT table_name AS table, retention_ms AS ms FROM ${RETENTIONS} ORDER BY 1`,
  );
  return new Map(rows.map(({ table, ms }) => [table, Number(ms)]));
}

function sweepsOf(table: string, lifetime: Lifetime): Sweep[] {
  if (table === MARKERS) return [byAge('markers', (db) => markerTable(db, lifetime))];
  return [
    byAge('completed records', (db) => completedRecords(db, lifetime)),
    {
      name: 'abandoned records',
      run: (db, plan) => sweepAbandoned(db, lifetime, plan),
      measure: (db) => measureAbandoned(db, lifetime),
    },
  ];
}

function byAge(name: string, tableOn: (db: Queryable) => ExpiringTable): Sweep {
  return {
    name,
    run: (db, plan) => sweepExpired(tableOn(db), plan),
    measure: (db) => measureBacklog(tableOn(db)),
  };
}

function failing(name: string, error: unknown): Sweep {
  return { name, run: () => Promise.reject(error), measure: () => Promise.reject(error) };
}

function noRow(table: string): string {
  return `${RETENTIONS} has no row for ${table}, so the purge cannot know what was promised, and deletes nothing there. Say, as the owner: INSERT INTO ${RETENTIONS} VALUES ('${table}', the longest retention of any function in ms).`;
}

function unknown(table: string): string {
  return `This release does not know the table ${table} of ${RETENTIONS}, so it does not sweep it. Deploy the purge of the release that made it; or, if nobody fills it any more, delete the row.`;
}
