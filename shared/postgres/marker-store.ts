import type { Mutation, Store, Unprotected } from '../core/contract.ts';
import { type ClaimPlan, openClaimed } from './claimed-transaction.ts';
import { outcomeAtConnect } from './classify-error.ts';
import { needsPart } from './connection-check.ts';
import { acquire, type Database } from './pool.ts';
import { promiseRetention } from './promise.ts';
import { claimMarker, enterTransaction, proofOfMarker } from './step-zero.ts';
import type { Tx } from './transaction.ts';

export interface MarkerStoreOptions {
  readonly database: Database;
  /** How long a replay is caught at the least, from the claim on. */
  readonly retentionMs: number;
}

/** The store for state in Postgres: the marker row and the mutation in one transaction. */
export function markerStore({ database, retentionMs }: MarkerStoreOptions): Store<Tx> {
  database.addConnectionCheck(MARKER_NEEDS);
  promiseRetention(database, 'player_mutation_idempotency', retentionMs);
  return {
    warm: database.warm,
    begin: async (request) => {
      try {
        const client = await acquire(database.pool, request.deadlineMs);
        return openClaimed(database, request, client, planOf(request, database, retentionMs));
      } catch (cause) {
        return outcomeAtConnect(cause); // Nothing was begun.
      }
    },
  };
}

/** What the store needs of the schema and its role. */
const MARKER_NEEDS = needsPart('markers', {
  tables: { player_mutation_idempotency: ['SELECT', 'INSERT'] },
  functions: ['enter_transaction(timestamptz)', 'claim_marker(text, text, timestamptz)'],
  migration: '0001_markers',
});

function planOf(
  request: Mutation | Unprotected,
  database: Database,
  retentionMs: number,
): ClaimPlan {
  const deadlineServerMs = database.toServerMs(request.deadlineMs);
  if (request.key === undefined) {
    return {
      step0: (send) => enterTransaction(send, deadlineServerMs),
      proof: undefined,
      retentionMs,
    };
  }
  return {
    step0: (send) => claimMarker(send, request, deadlineServerMs),
    proof: (started) => proofOfMarker(request, started),
    retentionMs,
  };
}
