import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs } from '../core/clock.ts';
import { meaningOf } from './classify-error.ts';
import { acquire, type Database } from './pool.ts';

export type CommitFate =
  | { readonly kind: 'committed'; readonly retainedFromMs: number }
  | { readonly kind: 'aborted' | 'unknown' };

/**
 * A query for the row that only this transaction's COMMIT has put there: `$1` is its number,
 * `values` follow; it answers the time that the retention counts from (`retainedFromMs`), or no row.
 *
 * The number alone proves nothing. A server that was restored or promoted gives out the same
 * numbers again, and on a quiet one to the very retry of what was lost; so the proof holds
 * something that a second transaction cannot have: the claim's time, or the owner's token.
 */
export interface CommitProof {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** While a COMMIT is still being worked on, ask again this often. */
const ASK_EVERY_MS = 20;

/**
 * What became of a COMMIT whose answer was lost: asked, not guessed, on a new
 * connection, until `untilAtMs` (our clock). Never rejects; what it cannot find out is
 * 'unknown', which is safe to resend with the same key.
 */
export async function lookUpCommit(
  database: Database,
  proof: CommitProof,
  xid: string,
  untilAtMs: number,
): Promise<CommitFate> {
  let wasUnproven = false;
  while (nowMs() < untilAtMs) {
    try {
      const fate = await askOnce(database, proof, xid, untilAtMs);
      if (fate.kind === 'unproven' && wasUnproven) return { kind: 'unknown' };
      wasUnproven = fate.kind === 'unproven';
      if (isKnown(fate)) return fate;
    } catch (error) {
      // 22023 (a number from another cluster's future) and the like stay unknown.
      if (meaningOf(error) !== 'connection') return { kind: 'unknown' };
    }
    await sleep(ASK_EVERY_MS);
  }
  return { kind: 'unknown' };
}

async function askOnce(database: Database, proof: CommitProof, xid: string, untilAtMs: number) {
  const client = await acquire(database.pool, untilAtMs);
  let isDone = false;
  try {
    const { rows } = await client.query<Answer>({
      text: `SELECT pg_is_in_recovery() AS "isStandby", pg_xact_status($1::xid8) AS status,
                    (${proof.text}) AS "retainedFromMs"`,
      values: [xid, ...proof.values],
      query_timeout: Math.max(1, untilAtMs - nowMs()),
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
  readonly retainedFromMs: number | null;
}

/** `unproven`: committed, and its row is not seen. */
type Judgement = CommitFate | { readonly kind: 'in progress' | 'unproven' };

function isKnown(judgement: Judgement): judgement is CommitFate {
  return judgement.kind !== 'unproven' && judgement.kind !== 'in progress';
}

function judge(answer: Answer | undefined): Judgement {
  if (!answer || answer.isStandby) return { kind: 'unknown' };
  const { status, retainedFromMs } = answer;
  // A visible row is the proof, also when the status is NULL because the number is old.
  if (retainedFromMs !== null) return { kind: 'committed', retainedFromMs };
  switch (status) {
    case 'committed':
      // It may have committed behind the snapshot of the question, which the status does
      // not go by and the proof does: the next question will see it.
      return { kind: 'unproven' };
    case 'aborted':
    case 'in progress':
      return { kind: status };
    default:
      return { kind: 'unknown' }; // NULL: too old to be known.
  }
}
