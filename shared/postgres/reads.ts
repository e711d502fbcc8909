import type { PoolClient, QueryResult, QueryResultRow } from 'pg';
import { nowMs } from '../core/clock.ts';
import { RejectedError } from '../core/outcome.ts';
import { isDefiniteFailure, isFaultOfOurs, meaningOf, unavailable } from './classify-error.ts';
import { destroySocket } from './pg-insides.ts';
import { acquire, type Database, type Queryable } from './pool.ts';
import { answeredAtOnce } from './silence.ts';

/**
 * For what changes nothing: statements that may be sent again when their answer was lost, each in
 * a READ ONLY transaction of its own, so that one which does change something fails instead of
 * happening twice. They end by `untilAtMs` (our clock) whatever is silent, and where the environment
 * was frozen and its connections have died meanwhile, on a new one.
 *
 * @throws RejectedError UNAVAILABLE (503 and Retry-After over HTTP) where the database is away or does not answer.
 * @throws DatabaseError for a wrong statement, ConfigError for an unfit server.
 */
export function readsOn(database: Database, untilAtMs: number): Queryable {
  return {
    query: async (text, values) => {
      // All idle connections may have died together; behind them a new one, and one reconnect.
      for (let triesLeft = database.pool.idleCount + 1; ; triesLeft--) {
        const read = await tryToRead<never>(database, text, values, untilAtMs);
        if ('result' in read) return read.result;
        if (triesLeft === 0 || !read.mayPass || nowMs() >= untilAtMs) {
          throw new RejectedError(unavailable(read.cause));
        }
      }
    },
  };
}

type Read<Row extends QueryResultRow> =
  | { readonly result: QueryResult<Row> }
  /** `mayPass`: another try may do better, at once. */
  | { readonly cause: unknown; readonly mayPass: boolean };

async function tryToRead<Row extends QueryResultRow>(
  { pool, pipeline }: Database,
  text: string,
  values: unknown[] | undefined,
  untilAtMs: number,
): Promise<Read<Row>> {
  let client: PoolClient;
  try {
    client = await acquire(pool, untilAtMs);
  } catch (cause) {
    if (isFaultOfOurs(cause)) throw cause;
    return { cause, mayPass: true };
  }
  let isWhole = true;
  const late = setTimeout(() => destroySocket(client), Math.max(1, untilAtMs - nowMs()));
  try {
    return { result: await readOnly<Row>(client, pipeline, text, values) };
  } catch (cause) {
    isWhole = isDefiniteFailure(cause);
    return failedRead(cause);
  } finally {
    clearTimeout(late);
    client.release(!isWhole || client.getTransactionStatus() !== 'I');
  }
}

/** BEGIN waits for nobody: that it is answered at once shows that the connection lives. */
async function readOnly<Row extends QueryResultRow>(
  client: PoolClient,
  pipeline: boolean,
  text: string,
  values: unknown[] | undefined,
): Promise<QueryResult<Row>> {
  const send = <R extends QueryResultRow>(sql: string, given?: unknown[]) => {
    const answer = client.query<R>(sql, given);
    answer.catch(() => {}); // Which of them is awaited first depends on the fault.
    return answer;
  };
  const begun = send('BEGIN READ ONLY');
  if (!pipeline) await answeredAtOnce(client, begun);
  const answer = send<Row>(text, values);
  const ended = pipeline ? send('COMMIT') : answer.finally(() => send('COMMIT'));
  if (pipeline) await answeredAtOnce(client, begun);
  await Promise.allSettled([answer, ended]);
  return answer;
}

/** @throws `cause` where it says that the statement itself is wrong. */
function failedRead(cause: unknown): { readonly cause: unknown; readonly mayPass: boolean } {
  if ((cause as { code?: unknown })?.code === '25006') throw cause; // It would have written.
  switch (meaningOf(cause)) {
    case 'connection':
    case 'conflict':
      return { cause, mayPass: true };
    case 'lock-timeout':
      return { cause, mayPass: false };
    default:
      throw cause;
  }
}
