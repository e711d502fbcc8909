import { setTimeout as sleep } from 'node:timers/promises';
import type { TestDatabase } from './database.ts';

/**
 * How long a test waits for what is bound to come. Only a hang takes so long, however busy the
 * machine: it is no measure of anything. Less than a test's own limit (vitest.config.ts), so that
 * what was waited for is told.
 */
export const HANG_MS = 480_000;

/** Asks until the answer is there. For what is bound to come, never instead of an order of events. */
export async function eventually<T>(
  ask: () => Promise<T | undefined | false>,
  what: string,
  withinMs = HANG_MS,
): Promise<T> {
  const endMs = performance.now() + withinMs;
  while (performance.now() < endMs) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    await sleep(10);
  }
  throw new Error(`never seen within ${withinMs} ms: ${what}`);
}

export interface BlockedSession {
  readonly pid: number;
  readonly query: string;
  readonly blockers: number[];
}

/** Waits until at least `count` sessions of this database are seen waiting for another's lock. */
export function seenBlocked(db: TestDatabase, count = 1): Promise<BlockedSession[]> {
  return eventually(async () => {
    const rows = await db.sql<BlockedSession & Record<string, unknown>>(
      `SELECT pid, query, pg_blocking_pids(pid) AS blockers FROM pg_stat_activity
        WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`,
    );
    return rows.length >= count && rows;
  }, `${count} blocked session(s)`);
}
