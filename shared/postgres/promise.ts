import { needsPart } from './connection-check.ts';
import type { Database } from './pool.ts';

/**
 * Has every connection write to the database how long rows of this table are kept, before it claims
 * anything: the purge believes `idempotency_retentions` and no environment of its own. Part of
 * the connection check, so it costs no round trip; a write only where it raises what is there.
 *
 * @throws RangeError when it is no length of time.
 */
export function promiseRetention(database: Database, table: string, retentionMs: number): void {
  const wholeMs = Math.ceil(retentionMs);
  if (!Number.isSafeInteger(wholeMs) || wholeMs <= 0) {
    throw new RangeError(
      `retentionMs is ${retentionMs}: it is how many milliseconds a replay is caught, such as 3600000`,
    );
  }
  database.addConnectionCheck(PROMISE_NEEDS);
  database.addConnectionCheck({
    // With its length: a longer one makes the connections that promised less outdated.
    name: `promise for ${table}: ${wholeMs}`,
    sql: (bind) => `promise_retention(${bind(table)}, ${bind(wholeMs)})`,
    callsFunctions: true,
    judge: (promisedMs) => (promisedMs === null ? [{ kind: 'missing', ...rowOf(table) }] : []),
  });
}

/** The purge sweeps what has a row. */
function rowOf(table: string) {
  const object = `the row of ${table} in idempotency_retentions`;
  return { object, migration: '0003_retentions' };
}

const PROMISE_NEEDS = needsPart('promises', {
  tables: {},
  functions: ['promise_retention(text, bigint)'],
  migration: '0003_retentions',
});
