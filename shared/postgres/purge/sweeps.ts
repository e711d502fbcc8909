/**
 * What there is to sweep: the one list of the scheduled purge, of the command and of its dry
 * run. It follows `idempotency_retentions`, so that a table that expires cannot be left out
 * without a word.
 */
import type { Queryable } from '../pool.ts';
import { measureBacklog, type Remainder } from './backlog.ts';
import { type ExpiringTable, type Kept, MARKERS, markerTable } from './expiring-table.ts';
import type { Pace } from './pace.ts';
import {
  completedRecords,
  measureAbandoned,
  RECORDS,
  sweepAbandonedRecords,
} from './record-sweeps.ts';
import { RETENTIONS, type Retention, readPromises, retentionOf } from './retentions.ts';
import { type Share, type SweepReport, sweepExpired } from './sweep.ts';

/** One kind of row that expires. */
export interface Sweep {
  readonly name: string;
  run(db: Queryable, course: Course, remainingMs: () => number): Promise<SweepReport>;
  /** What of it has expired by now. */
  measure(db: Queryable): Promise<Remainder>;
}

/** How a pass goes about its sweeps. */
export interface Course {
  readonly share: Share;
  readonly batchRowsMax: number;
  createPace(remainingMs: () => number): Pace;
  onBatch(rows: number): void;
}

/** Our own settings; what the database says counts where it is more. */
export interface KeepSettings {
  readonly markerRetentionMs: number;
  readonly recordRetentionMs: number;
  readonly marginMs: number;
}

export interface SweepList {
  readonly retentions: readonly Retention[];
  readonly sweeps: readonly Sweep[];
}

/**
 * The sweeps of this database, by what is promised now: to be asked anew for each pass. Whatever
 * is not as it should be is in the list too, as a sweep that fails: it keeps no other from its work.
 */
export async function listSweeps(db: Queryable, settings: KeepSettings): Promise<SweepList> {
  let promises: ReadonlyMap<string, number>;
  try {
    promises = await readPromises(db);
  } catch (error) {
    return { retentions: [], sweeps: [failing(RETENTIONS, error)] };
  }
  const known = knownTables(settings);
  const list: { retentions: Retention[]; sweeps: Sweep[] } = { retentions: [], sweeps: [] };
  for (const { table, configuredMs, sweepsOf } of known) {
    const promisedMs = promises.get(table);
    if (promisedMs === undefined) {
      list.sweeps.push(failing(table, new Error(noRow(table))));
      continue;
    }
    const retention = retentionOf(table, promisedMs, configuredMs);
    list.retentions.push(retention);
    list.sweeps.push(
      ...sweepsOf({ retentionMs: retention.retentionMs, marginMs: settings.marginMs }),
    );
  }
  for (const table of promises.keys()) {
    if (!known.some((each) => each.table === table))
      list.sweeps.push(failing(table, new Error(unknown(table))));
  }
  return list;
}

function knownTables(settings: KeepSettings) {
  return [
    {
      table: MARKERS,
      configuredMs: settings.markerRetentionMs,
      sweepsOf: (kept: Kept) => [byAge('markers', (db) => markerTable(db, kept))],
    },
    {
      table: RECORDS,
      configuredMs: settings.recordRetentionMs,
      sweepsOf: (kept: Kept): Sweep[] => [
        byAge('completed records', (db) => completedRecords(db, kept)),
        {
          name: 'abandoned records',
          run: (db, { onBatch }, remainingMs) =>
            sweepAbandonedRecords(db, kept, { remainingMs, onBatch }),
          measure: (db) => measureAbandoned(db, kept),
        },
      ],
    },
  ];
}

function byAge(name: string, tableOn: (db: Queryable) => ExpiringTable): Sweep {
  return {
    name,
    run: (db, { createPace, ...course }, remainingMs) =>
      sweepExpired({
        ...course,
        table: tableOn(db),
        createPace: () => createPace(remainingMs),
        remainingMs,
      }),
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
