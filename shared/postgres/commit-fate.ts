import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs } from '../core/clock.ts';
import { acquire, type Database } from './pool.ts';
import { meaningOf } from './sqlstate.ts';

export type CommitFate =
  | { readonly kind: 'committed'; readonly markedAtMs: number }
  | { readonly kind: 'aborted' | 'unknown' };

/**
 * A query for what only this transaction's COMMIT has put there: `$1` is its number,
 * `values` follow; it answers `markedAtMs`, or no row.
 *
 * The number alone marks nothing. A server that was restored or promoted gives out the same
 * numbers again, and on a quiet one to the very retry of what was lost; so the mark holds
 * something that a second transaction cannot have: the claim's time, or the owner's token.
 */
export interface Mark {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** While a COMMIT is still being worked on, ask again this often. */
const ASK_EVERY_MS = 20;

/**
 * What became of a COMMIT whose answer was lost: asked, not guessed, on a new
 * connection, until `byMs` (our clock). Never rejects; what it cannot find out is
 * 'unknown', which is safe to resend with the same key.
 */
export async function fateOfCommit(
  database: Database,
  mark: Mark,
  xid: string,
  byMs: number,
): Promise<CommitFate> {
  let wasUnmarked = false;
  while (nowMs() < byMs) {
    try {
      const fate = await askOnce(database, mark, xid, byMs);
      if (fate.kind === 'unmarked' && wasUnmarked) return { kind: 'unknown' };
      wasUnmarked = fate.kind === 'unmarked';
      if (isKnown(fate)) return fate;
    } catch (error) {
      // 22023 (a number from another cluster's future) and the like stay unknown.
      if (meaningOf(error) !== 'connection') return { kind: 'unknown' };
    }
    await sleep(ASK_EVERY_MS);
  }
  return { kind: 'unknown' };
}

async function askOnce(database: Database, mark: Mark, xid: string, byMs: number) {
  const client = await acquire(database.pool, byMs);
  let isDone = false;
  try {
    const { rows } = await client.query<Answer>({
      text: `SELECT pg_is_in_recovery() AS "isStandby", pg_xact_status($1::xid8) AS status,
                    (${mark.text}) AS "markedAtMs"`,
      values: [xid, ...mark.values],
      query_timeout: Math.max(1, byMs - nowMs()),
    } as { text: string; values: unknown[] });
    isDone = true;
    return judge(rows[0]);
  } finally {
    client.release(!isDone);
  }
}

interface Answer {
  readonly isStandby: boolean;
  readonly status: string | null;
  readonly markedAtMs: number | null;
}

/** `unmarked`: committed, and its mark is not seen. */
type Judgement = CommitFate | { readonly kind: 'in progress' | 'unmarked' };

function isKnown(judgement: Judgement): judgement is CommitFate {
  return judgement.kind !== 'unmarked' && judgement.kind !== 'in progress';
}

function judge(answer: Answer | undefined): Judgement {
  if (!answer || answer.isStandby) return { kind: 'unknown' };
  const { status, markedAtMs } = answer;
  // A visible row is the proof, also when the status is NULL because the number is old.
  if (markedAtMs !== null) return { kind: 'committed', markedAtMs };
  switch (status) {
    case 'committed':
      // It may have committed behind the snapshot of the question, which the status does
      // not go by and the mark does: the next question will see it.
      return { kind: 'unmarked' };
    case 'aborted':
    case 'in progress':
      return { kind: status };
    default:
      return { kind: 'unknown' }; // NULL: too old to be known.
  }
}
