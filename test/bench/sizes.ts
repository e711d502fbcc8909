/**
 * What one first request costs in each store: bytes, transaction ids, units, processor time.
 * docs/scale.md multiplies them. Bytes and ids do not depend on the machine; its
 * processor time is an upper bound at best.
 */

import { openBenchPostgres } from './postgres.ts';
import type { BenchRun, Outcome } from './run.ts';
import { measureClaims } from './sizes-claims.ts';
import { measureStores } from './sizes-stores.ts';
import { measureRows } from './sizes-tables.ts';

export async function bench(run: BenchRun): Promise<Record<'sizes', Outcome>> {
  const postgres = await openBenchPostgres();
  try {
    const admin = await postgres.connect();
    // A vacuum in between would write to the log as well.
    await admin.query('ALTER SYSTEM SET autovacuum = off');
    await admin.query('SELECT pg_reload_conf()');
    const figures = {
      ...(await measureStores(postgres, run)),
      ...(await measureRows(postgres, run)),
      ...(await measureClaims(postgres, run)),
    };
    return { sizes: { figures, goals: {} } };
  } finally {
    await postgres.close();
  }
}
