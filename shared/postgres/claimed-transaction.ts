/**
 * One attempt in Postgres, from BEGIN to the answer of COMMIT: what the stores that
 * keep their claims here have in common. They differ in their step 0, in what they
 * write last, and in the proof by which a lost COMMIT is recognised.
 */
import type { PoolClient } from 'pg';
import {
  ANSWER_GRACE_MS,
  COMMIT_LOOKUP_GRACE_MS,
  type Completion,
  type Kept,
  type Mutation,
  type OpenTransaction,
  type Unprotected,
} from '../core/contract.ts';
import { DeadlineError, type NotCommitted, type Unknown, withoutRetry } from '../core/outcome.ts';
import { isDefiniteFailure, outcomeAtClaim, outcomeInWork, unavailable } from './classify-error.ts';
import { type CommitProof, lookUpCommit } from './commit-fate.ts';
import type { Database } from './pool.ts';
import type { Started } from './step-zero.ts';
import {
  openTransaction,
  type Send,
  type Statement,
  type Transaction,
  type Tx,
} from './transaction.ts';

export interface ClaimPlan {
  /** Sent right behind BEGIN. */
  step0(send: Send): Promise<Started>;
  /**
   * Sent right before COMMIT; its failure makes a ROLLBACK of it. Answers one row with the time
   * that the retention counts from as `retainedFromMs`.
   */
  beforeCommit?(completion: Completion): Statement;
  /** The row that only this transaction's COMMIT has put there; undefined when it leaves none. */
  readonly proof: ((started: Started) => CommitProof) | undefined;
  /** How long after that time a replay is caught at the least. */
  readonly retentionMs: number;
}

type PostgresRequest = Mutation | Unprotected;

export function openClaimed(
  database: Database,
  request: PostgresRequest,
  client: PoolClient,
  plan: ClaimPlan,
): OpenTransaction<Tx> {
  const transaction = openTransaction({
    client,
    pipeline: database.pipeline,
    answerUntilAtMs: request.deadlineMs + ANSWER_GRACE_MS,
    step0: (send) => plan.step0(send),
  });
  const claimed = transaction.begun as Promise<Started>;
  return {
    tx: transaction.tx,
    claimed,
    commit: async (completion) => {
      const started = await claimed;
      const refusal = transaction.refusal();
      if (refusal) {
        await transaction.end();
        return { kind: 'failed', error: refusal };
      }
      const last = plan.beforeCommit?.(completion); // Before anything is sent: it may throw.
      const sent = await commit(transaction, completion.keepWrites, last);
      const isOpen = sent.kind === 'unknown' && !sent.isLost;
      const known = isOpen ? await lookUp(database, request, started, plan, sent) : sent;
      if (known.kind !== 'committed') {
        return request.key === undefined ? withoutRetry(known) : known;
      }
      const fromMs = known.retainedFromMs ?? claimedAtMs(started);
      const expiresAtMs = fromMs === undefined ? undefined : fromMs + plan.retentionMs;
      return { kind: 'committed', result: completion.kept, expiresAtMs };
    },
    rollback: async (error) => {
      const outcome = await explain(error, transaction);
      await transaction.end();
      return outcome;
    },
    cancel: transaction.endSoon,
  };
}

function claimedAtMs({ claimedAtUs }: Started): number | undefined {
  return claimedAtUs === undefined ? undefined : Number(claimedAtUs) / 1000;
}

type Sent =
  | NotCommitted<Kept>
  | { readonly kind: 'committed'; readonly retainedFromMs?: number | undefined };

/** The point of truth: only the tag COMMIT is one. */
async function commit(
  transaction: Transaction,
  keepWrites: boolean,
  last: Statement | undefined,
): Promise<Sent> {
  try {
    throwIfEndedEarly(transaction);
    const { tag, lastRow } = await transaction.commit<{ retainedFromMs: number }>(keepWrites, last);
    throwIfEndedEarly(transaction);
    if (tag === 'COMMIT') return { kind: 'committed', retainedFromMs: lastRow?.retainedFromMs };
    // Of an answer that is neither nothing may be concluded.
    if (tag !== 'ROLLBACK') throw new Error(`COMMIT was answered with ${tag}`);
    const cause = transaction.firstError();
    const message =
      'The work swallowed an error that had aborted its transaction: nothing was committed.';
    return outcomeInWork(cause, new Error(message, { cause }));
  } catch (error) {
    const lost = outcomeLost(transaction);
    if (lost) return lost;
    if (isDefiniteFailure(error)) return outcomeInWork(error, error);
    // FATAL, or a connection lost, ours or the proxy's: it may have been carried out all the same.
    transaction.destroy();
    return { kind: 'unknown', cause: error };
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
 * without a claim: nothing is known of them, and nothing is tried again.
 */
function outcomeLost(transaction: Transaction): Unknown | undefined {
  const cause = transaction.endedEarly();
  return cause && { kind: 'unknown', cause, isLost: true };
}

/** The answer to COMMIT was lost: find out. Without a proof there is nothing to look for. */
async function lookUp(
  database: Database,
  request: PostgresRequest,
  started: Started,
  { proof }: ClaimPlan,
  unknown: Unknown,
): Promise<Sent> {
  if (proof === undefined) return unknown;
  const untilAtMs = request.deadlineMs + COMMIT_LOOKUP_GRACE_MS;
  const fate = await lookUpCommit(database, proof(started), started.xid, untilAtMs);
  switch (fate.kind) {
    case 'committed':
      return fate;
    case 'aborted':
      return { kind: 'retryable', reason: 'connection', cause: unknown.cause };
    case 'unknown':
      return unknown;
  }
}

/** A claim that failed outranks whatever the work made of the answers it never got. */
async function explain(error: unknown, transaction: Transaction): Promise<NotCommitted<Kept>> {
  if (error instanceof DeadlineError && !transaction.isBegun()) {
    // Past even lock_timeout, which ends at the deadline: the server does not answer.
    const silent = new Error('Postgres did not answer the claim by the deadline', { cause: error });
    return unavailable(silent);
  }
  try {
    await transaction.begun;
  } catch (claimError) {
    return outcomeAtClaim(claimError);
  }
  const lost = outcomeLost(transaction);
  if (lost) return lost;
  return outcomeInWork(transaction.firstError(), error);
}
