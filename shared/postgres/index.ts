/** The two stores in PostgreSQL, the pool under them, and the tables that they need. */

export { compareAndSwap, STALE } from './compare-and-swap.ts';
export { type MarkerStoreOptions, markerStore } from './marker-store.ts';
export { type MigrateOptions, migrate } from './migrate.ts';
export { createDatabase, type Database, type PoolOptions, type Queryable } from './pool.ts';
export { type PurgeResult, type PurgeRun, runPurge } from './purge/run.ts';
export type { SweepPlan } from './purge/sweep.ts';
export type { RetentionSettings } from './purge/tables.ts';
export { throttleByTime } from './purge/throttle.ts';
export { readsOn } from './reads.ts';
export { type RecordStoreOptions, type RecordTx, recordStore } from './record-store.ts';
export type { Tx } from './transaction.ts';
