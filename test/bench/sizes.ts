/**
 * What one first request costs in each store: bytes, transaction ids, units, processor time.
 * docs/scale.md multiplies them. Bytes and ids do not depend on the machine; its
 * processor time is an upper bound at best.
 */
import type { BenchRun, Outcome } from './run.ts';
import { measureClaims } from './sizes-claims.ts';
import { measureStores } from './sizes-stores.ts';
import { measureRows } from './sizes-tables.ts';
import { openStage } from './stage.ts';

export async function bench(run: BenchRun): Promise<Record<'sizes', Outcome>> {
  const stage = await openStage();
  try {
    const admin = await stage.connect();
    // A vacuum in between would write to the log as well.
    await admin.query('ALTER SYSTEM SET autovacuum = off');
    await admin.query('SELECT pg_reload_conf()');
    const figures = {
      ...(await measureStores(stage, run)),
      ...(await measureRows(stage, run)),
      ...(await measureClaims(stage, run)),
    };
    return { sizes: { figures, goals: {} } };
  } finally {
    await stage.close();
  }
}
