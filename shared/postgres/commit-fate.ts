import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs } from '../clock.ts';
import type { Mutation } from '../idempotency/contract.ts';
import { acquire, type Database } from './pool.ts';
import { meaningOf } from './sqlstate.ts';

export type CommitFate = 'committed' | 'aborted' | 'unknown';

/** While a COMMIT is still being worked on, ask again this often. */
const ASK_EVERY_MS = 20;

/**
 * What became of a COMMIT whose answer was lost: asked, not guessed, on a new
 * connection, until `byMs` (our clock). Never rejects; what it cannot find out is
 * 'unknown', which is safe to resend with the same key.
 */
export async function fateOfCommit(
  database: Database,
  mutation: Pick<Mutation, 'principal' | 'key'>,
  xid: string,
  byMs: number,
): Promise<CommitFate> {
  while (nowMs() < byMs) {
    try {
      const fate = await askOnce(database, mutation, xid, byMs);
      if (fate !== 'in progress') return fate;
    } catch (error) {
      // 22023 (a number from another cluster's future) and the like stay unknown.
      if (meaningOf(error) !== 'connection') return 'unknown';
    }
    await sleep(ASK_EVERY_MS);
  }
  return 'unknown';
}

/**
 * The status alone would not do: a server restored from a backup knows the number
 * for another transaction. So the marker must bear it too.
 */
async function askOnce(
  database: Database,
  { principal, key }: Pick<Mutation, 'principal' | 'key'>,
  xid: string,
  byMs: number,
): Promise<CommitFate | 'in progress'> {
  const client = await acquire(database.pool, byMs);
  let isDone = false;
  try {
    const { rows } = await client.query<Answer>({
      text: `SELECT pg_is_in_recovery() AS "isStandby", pg_xact_status($3::xid8) AS status,
                    EXISTS (SELECT FROM player_mutation_idempotency
                             WHERE user_id = $1 AND request_id = $2
                               AND xmin = $3::xid8::xid) AS "isMarked"`,
      values: [principal, key, xid],
      query_timeout: Math.max(1, byMs - nowMs()),
    } as { text: string; values: string[] });
    isDone = true;
    return judge(rows[0]);
  } finally {
    client.release(!isDone);
  }
}

interface Answer {
  readonly isStandby: boolean;
  readonly status: string | null;
  readonly isMarked: boolean;
}

function judge(answer: Answer | undefined): CommitFate | 'in progress' {
  if (!answer || answer.isStandby) return 'unknown';
  switch (answer.status) {
    case 'committed':
      return answer.isMarked ? 'committed' : 'unknown';
    case 'aborted':
      return 'aborted';
    case 'in progress':
      return 'in progress';
    default:
      return 'unknown'; // NULL: too old to be known.
  }
}
