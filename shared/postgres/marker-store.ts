import type { PoolClient } from 'pg';
import {
  type Attempt,
  DeadlineError,
  type Mutation,
  RESOLVE_MS,
  type Setback,
  SILENCE_MS,
  type Store,
  type Unprotected,
} from '../idempotency/contract.ts';
import { fateOfCommit } from './commit-fate.ts';
import { claimMarker, type MarkerClaim } from './markers.ts';
import { acquire, type Database } from './pool.ts';
import { setbackAtClaim, setbackInWork } from './setbacks.ts';
import { isDefiniteFailure } from './sqlstate.ts';
import { openTransaction, type Transaction, type Tx } from './transaction.ts';

export interface MarkerStoreOptions {
  readonly database: Database;
  /** How long a replay is caught at the least, from the claim on. */
  readonly retentionMs: number;
}

type MarkerRequest = Mutation | Unprotected;

/** The store for state in Postgres: the marker row and the mutation in one transaction. */
export function markerStore(options: MarkerStoreOptions): Store<Tx> {
  return {
    begin: async (request) => {
      try {
        const client = await acquire(options.database.pool, request.deadlineMs);
        return openAttempt(options, request, client);
      } catch (cause) {
        // Whatever the reason, a wrong configuration included: nothing was begun.
        return { kind: 'unavailable', cause };
      }
    },
  };
}

function openAttempt(
  options: MarkerStoreOptions,
  request: MarkerRequest,
  client: PoolClient,
): Attempt<Tx> {
  const { database } = options;
  const transaction = openTransaction({
    client,
    pipeline: database.pipeline,
    answerByMs: request.deadlineMs + SILENCE_MS,
    step0: async (send) =>
      request.key === undefined
        ? undefined
        : claimMarker(send, request, database.toServerMs(request.deadlineMs)),
  });
  const claimed = transaction.begun as Promise<MarkerClaim | undefined>;
  return {
    tx: transaction.tx,
    claimed,
    commit: async (response, keepWrites) => {
      const claim = await claimed;
      const settlement = await commit(transaction, keepWrites);
      const known =
        settlement.kind === 'unknown-outcome'
          ? await resolve(options, request, claim, settlement)
          : settlement;
      if (known.kind === 'retry' && request.key === undefined) return final(known);
      if (known.kind !== 'committed') return known;
      const expiresAtMs = claim && claim.createdAtMs + options.retentionMs;
      return { kind: 'committed', response, expiresAtMs };
    },
    abandon: async (error) => {
      const setback = await explain(error, transaction);
      await transaction.end();
      return setback;
    },
  };
}

/** Without a key nothing is tried again once COMMIT was sent, however sure its failure is. */
function final({ because, cause }: Extract<Setback, { kind: 'retry' }>): Setback {
  return { kind: because === 'conflict' ? 'contention' : 'unavailable', cause };
}

/** The point of truth: only the tag COMMIT is one. */
async function commit(
  transaction: Transaction,
  keepWrites: boolean,
): Promise<Setback | { readonly kind: 'committed' }> {
  try {
    const tag = await transaction.commit(keepWrites);
    if (tag === 'COMMIT') return { kind: 'committed' };
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

/** The answer to COMMIT was lost: find out. Without a claim there is nothing to ask for. */
async function resolve(
  { database }: MarkerStoreOptions,
  request: MarkerRequest,
  claim: MarkerClaim | undefined,
  unknown: Extract<Setback, { kind: 'unknown-outcome' }>,
): Promise<Setback | { readonly kind: 'committed' }> {
  if (request.key === undefined || claim === undefined) return unknown;
  const byMs = request.deadlineMs + RESOLVE_MS;
  switch (await fateOfCommit(database, request, claim.xid, byMs)) {
    case 'committed':
      return { kind: 'committed' };
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
