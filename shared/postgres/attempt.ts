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
} from '../idempotency/contract.ts';
import { fateOfCommit, type Mark } from './commit-fate.ts';
import type { Database } from './pool.ts';
import { setbackAtClaim, setbackInWork } from './setbacks.ts';
import { isDefiniteFailure } from './sqlstate.ts';
import { openTransaction, type Send, type Transaction, type Tx } from './transaction.ts';

export interface Entered {
  /** The transaction's number, by which its COMMIT can be looked up. */
  readonly xid: string;
  /** When the claim was made, on the server's clock, if step 0 makes it. */
  readonly markedAtMs?: number;
}

export interface AttemptPlan {
  /** Sent right behind BEGIN. */
  step0(send: Send): Promise<Entered>;
  /** Sent right before COMMIT; its failure makes a ROLLBACK of it. Answers the time of the mark. */
  beforeCommit?(send: Send, completion: Completion): Promise<number>;
  /** What only this transaction's COMMIT has put there; undefined when it leaves no mark. */
  readonly mark: Mark | undefined;
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
      const { xid, markedAtMs } = await claimed;
      const sent = await commit(transaction, completion, plan);
      const known =
        sent.kind === 'unknown-outcome' ? await resolve(database, request, xid, plan, sent) : sent;
      if (known.kind === 'retry' && request.key === undefined) return final(known);
      if (known.kind !== 'committed') return known;
      const atMs = known.markedAtMs ?? markedAtMs;
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

/** Without a key nothing is tried again once COMMIT was sent, however sure its failure is. */
function final({ because, cause }: Extract<Setback, { kind: 'retry' }>): Setback {
  return { kind: because === 'conflict' ? 'contention' : 'unavailable', cause };
}

type Sent = Setback | { readonly kind: 'committed'; readonly markedAtMs?: number | undefined };

/** The point of truth: only the tag COMMIT is one. */
async function commit(
  transaction: Transaction,
  completion: Completion,
  plan: AttemptPlan,
): Promise<Sent> {
  try {
    const { tag, lastAnswer } = await transaction.commit(
      completion.keepWrites,
      plan.beforeCommit && ((send) => plan.beforeCommit?.(send, completion) as Promise<number>),
    );
    if (tag === 'COMMIT') return { kind: 'committed', markedAtMs: lastAnswer };
    const cause = transaction.firstError();
    const message =
      'The work swallowed an error that had aborted its transaction: nothing was committed.';
    return setbackInWork(cause, new Error(message, { cause }));
  } catch (error) {
    // FATAL, or a connection lost: it may have been carried out all the same.
    return isDefiniteFailure(error)
      ? setbackInWork(error, error)
      : { kind: 'unknown-outcome', cause: error };
  } finally {
    await transaction.end();
  }
}

/** The answer to COMMIT was lost: find out. Without a mark there is nothing to look for. */
async function resolve(
  database: Database,
  request: PostgresRequest,
  xid: string,
  { mark }: AttemptPlan,
  unknown: Extract<Setback, { kind: 'unknown-outcome' }>,
): Promise<Sent> {
  if (mark === undefined) return unknown;
  const fate = await fateOfCommit(database, mark, xid, request.deadlineMs + RESOLVE_MS);
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
  return setbackInWork(transaction.firstError(), error);
}
