/** The two stores in PostgreSQL, the pool under them, and the tables that they need. */

export { compareAndSwap, STALE } from './compare-and-swap.ts';
export { type MarkerStoreOptions, markerStore } from './marker-store.ts';
export { type MigrateOptions, migrate } from './migrate.ts';
export { createDatabase, type Database, type PoolOptions, type Queryable } from './pool.ts';
export { readsOn } from './reads.ts';
export { type RecordStoreOptions, type RecordTx, recordStore } from './record-store.ts';
export type { Tx } from './transaction.ts';
