/**
 * One attempt in Postgres, from BEGIN to the answer of COMMIT: what the stores that
 * keep their claims here have in common. They differ in their step 0, in what they
 * write last, and in the mark by which a lost COMMIT is recognised.
 */
import type { PoolClient } from 'pg';
import {
  type Attempt,
  type Completion,
  DeadlineError,
  type Mutation,
  RESOLVE_MS,
  type Setback,
  SILENCE_MS,
  type Unprotected,
} from '../core/contract.ts';
import { setbackAtClaim, setbackInWork } from './classify-error.ts';
import { fateOfCommit, type Mark } from './commit-fate.ts';
import type { Database } from './pool.ts';
import { isDefiniteFailure } from './sqlstate.ts';
import {
  openTransaction,
  type Send,
  type Statement,
  type Transaction,
  type Tx,
} from './transaction.ts';

export interface Entered {
  /** The transaction's number, by which its COMMIT can be looked up. */
  readonly xid: string;
  /** When step 0 made the claim, if it makes one: microseconds on the server's clock, as decimal text. */
  readonly claimedAtUs?: string;
}

export interface AttemptPlan {
  /** Sent right behind BEGIN. */
  step0(send: Send): Promise<Entered>;
  /**
   * Sent right before COMMIT; its failure makes a ROLLBACK of it. Answers one row with the time of
   * the mark as `markedAtMs`.
   */
  beforeCommit?(completion: Completion): Statement;
  /** What only this transaction's COMMIT has put there; undefined when it leaves no mark. */
  readonly mark: ((entered: Entered) => Mark) | undefined;
  /** How long after its mark a replay is caught at the least. */
  readonly retentionMs: number;
}

type PostgresRequest = Mutation | Unprotected;

export function openAttempt(
  database: Database,
  request: PostgresRequest,
  client: PoolClient,
  plan: AttemptPlan,
): Attempt<Tx> {
  const transaction = openTransaction({
    client,
    pipeline: database.pipeline,
    answerByMs: request.deadlineMs + SILENCE_MS,
    step0: (send) => plan.step0(send),
  });
  const claimed = transaction.begun as Promise<Entered>;
  return {
    tx: transaction.tx,
    claimed,
    commit: async (completion) => {
      const entered = await claimed;
      const refusal = transaction.refusal();
      if (refusal) {
        await transaction.end();
        return { kind: 'threw', error: refusal };
      }
      const last = plan.beforeCommit?.(completion); // Before anything is sent: it may throw.
      const sent = await commit(transaction, completion.keepWrites, last);
      const isOpen = sent.kind === 'unknown-outcome' && !sent.isLost;
      const known = isOpen ? await resolve(database, request, entered, plan, sent) : sent;
      if (known.kind === 'retry' && request.key === undefined) return final(known);
      if (known.kind !== 'committed') return known;
      const atMs = known.markedAtMs ?? claimedAtMs(entered);
      const expiresAtMs = atMs === undefined ? undefined : atMs + plan.retentionMs;
      const { response, stored } = completion;
      return { kind: 'committed', response, stored, expiresAtMs };
    },
    abandon: async (error) => {
      const setback = await explain(error, transaction);
      await transaction.end();
      return setback;
    },
    withdraw: transaction.endSoon,
  };
}

function claimedAtMs({ claimedAtUs }: Entered): number | undefined {
  return claimedAtUs === undefined ? undefined : Number(claimedAtUs) / 1000;
}

/** Without a key nothing is tried again once COMMIT was sent, however sure its failure is. */
function final({ because, cause }: Extract<Setback, { kind: 'retry' }>): Setback {
  return { kind: because === 'conflict' ? 'contention' : 'unavailable', cause };
}

type Sent = Setback | { readonly kind: 'committed'; readonly markedAtMs?: number | undefined };

/** The point of truth: only the tag COMMIT is one. */
async function commit(
  transaction: Transaction,
  keepWrites: boolean,
  last: Statement | undefined,
): Promise<Sent> {
  try {
    throwIfEndedEarly(transaction);
    const { tag, lastRow } = await transaction.commit<{ markedAtMs: number }>(keepWrites, last);
    throwIfEndedEarly(transaction);
    if (tag === 'COMMIT') return { kind: 'committed', markedAtMs: lastRow?.markedAtMs };
    // Of an answer that is neither nothing may be concluded.
    if (tag !== 'ROLLBACK') throw new Error(`COMMIT was answered with ${tag}`);
    const cause = transaction.firstError();
    const message =
      'The work swallowed an error that had aborted its transaction: nothing was committed.';
    return setbackInWork(cause, new Error(message, { cause }));
  } catch (error) {
    const lost = outcomeLost(transaction);
    if (lost) return lost;
    if (isDefiniteFailure(error)) return setbackInWork(error, error);
    // FATAL, or a connection lost, ours or the proxy's: it may have been carried out all the same.
    transaction.destroy();
    return { kind: 'unknown-outcome', cause: error };
  } finally {
    await transaction.end();
  }
}

function throwIfEndedEarly(transaction: Transaction): void {
  const error = transaction.endedEarly();
  if (error) throw error;
}

/**
 * Where the transaction ended before its time, some statements of the work may stand alone,
 * without a claim: nothing may be said of them, and nothing tried again.
 */
function outcomeLost(
  transaction: Transaction,
): Extract<Setback, { kind: 'unknown-outcome' }> | undefined {
  const cause = transaction.endedEarly();
  return cause && { kind: 'unknown-outcome', cause, isLost: true };
}

/** The answer to COMMIT was lost: find out. Without a mark there is nothing to look for. */
async function resolve(
  database: Database,
  request: PostgresRequest,
  entered: Entered,
  { mark }: AttemptPlan,
  unknown: Extract<Setback, { kind: 'unknown-outcome' }>,
): Promise<Sent> {
  if (mark === undefined) return unknown;
  const byMs = request.deadlineMs + RESOLVE_MS;
  const fate = await fateOfCommit(database, mark(entered), entered.xid, byMs);
  switch (fate.kind) {
    case 'committed':
      return fate;
    case 'aborted':
      return { kind: 'retry', because: 'connection', cause: unknown.cause };
    case 'unknown':
      return unknown;
  }
}

/** A claim that failed outranks whatever the work made of the answers it never got. */
async function explain(error: unknown, transaction: Transaction): Promise<Setback> {
  if (error instanceof DeadlineError && !transaction.isBegun()) {
    // Past even lock_timeout, which ends at the deadline: the server went silent.
    return { kind: 'unavailable', cause: error };
  }
  try {
    await transaction.begun;
  } catch (claimError) {
    return setbackAtClaim(claimError);
  }
  const lost = outcomeLost(transaction);
  if (lost) return lost;
  return setbackInWork(transaction.firstError(), error);
}
