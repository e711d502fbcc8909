import { createHash } from 'node:crypto';
import type { ClientBase, QueryResultRow } from 'pg';
import type { Kept, Mutation } from '../core/contract.ts';
import { encodeKept } from '../core/kept.ts';
import type { CommitProof } from './commit-fate.ts';
import { type CheckPart, needsPart } from './connection-check.ts';
import { hasRested } from './pool.ts';
import { answeredAtOnce } from './silence.ts';
import type { Statement } from './transaction.ts';

/** What `claim_record` answers; see 0002_records.sql. */
export interface RecordClaim extends QueryResultRow {
  readonly outcome: 'claimed' | 'completed' | 'mismatch' | 'unreadable' | 'leased';
  readonly id: string;
  /** Completed: the response as it was stored. */
  readonly response: Buffer | null;
  /** On the server's clock; the retention counts from here. */
  readonly completedAtMs: number | null;
  /** Leased: null where the lease is missing, which means locked. */
  readonly leaseLeftMs: number | null;
}

/**
 * Claims the record of this account, endpoint and key, or says why not: in its own
 * transaction, one round trip, and without a lock unless there is something to claim.
 * A claim that is ours already (the whole transaction is tried again) is renewed.
 *
 * @throws DatabaseError IDM02 past the deadline; 55P03 when the row stayed locked.
 * @throws SilenceError when the connection had died while nobody used it.
 */
export async function claimRecord(
  client: ClientBase,
  { principal, endpoint, key, fingerprint, token }: Mutation,
  { leaseMs, deadlineServerMs, answerWithinMs, pipeline }: ClaimOptions,
): Promise<RecordClaim> {
  // The claim may wait for a lock, up to the deadline. This waits for nothing: without an answer
  // to it the connection is dead. In a pipeline it costs no round trip.
  const alive = hasRested(client) ? answeredAtOnce(client, client.query('SELECT 1')) : undefined;
  if (!pipeline) await alive;
  const claiming = client.query<RecordClaim>({
    text: `SELECT outcome, id, response, completed_at_ms AS "completedAtMs",
                  lease_left_ms AS "leaseLeftMs"
             FROM claim_record($1, $2, $3, $4, $5, $6, to_timestamp($7::float8 / 1000))`,
    values: [
      principal,
      hashOf(endpoint),
      hashOf(key),
      fingerprint,
      token,
      leaseMs,
      deadlineServerMs,
    ],
    query_timeout: answerWithinMs,
  } as { text: string; values: unknown[] });
  claiming.catch(() => {}); // Rejects as well where nothing lives.
  await alive;
  const [claim] = (await claiming).rows;
  if (claim) return claim;
  throw new Error('claim_record answered no row: the schema is not the one of this release.');
}

export interface ClaimOptions {
  readonly pipeline: boolean;
  readonly leaseMs: number;
  readonly deadlineServerMs: number;
  readonly answerWithinMs: number;
}

const PUBLISH = 'publish_record(bigint, uuid, bytea)';

/** What the record store needs of the schema and its role. */
export const RECORD_NEEDS = needsPart('records', {
  tables: { idempotency_records: ['SELECT', 'INSERT', 'UPDATE', 'DELETE'] },
  functions: [
    'enter_transaction(timestamptz)',
    'claim_record(text, bytea, bytea, text, uuid, float8, timestamptz)',
    PUBLISH,
  ],
  migration: '0002_records',
});

/** Where `publish_record` is: it is called after the work, which may have changed the search_path. */
export const PUBLISH_HOME: CheckPart = {
  name: 'publish_record',
  sql: () => `(SELECT json_build_object('schema', pronamespace::regnamespace)
                 FROM pg_proc WHERE oid = to_regprocedure('${PUBLISH}'))`,
};

export interface PublishHome {
  /** As it is written in SQL. */
  readonly schema: string;
}

/**
 * The last statement of the mutation's own transaction. Qualified, since the work may have said
 * SET LOCAL search_path; under a role that it set, the function's own rights count. It answers when
 * the record was completed, on the server's clock, or raises IDM03 when the record is not ours any
 * more, so that everything is rolled back.
 */
export function publishStatement(
  { schema }: PublishHome,
  id: string,
  token: string,
  kept: Kept,
): Statement {
  return {
    text: `SELECT ${schema}.publish_record($1, $2, $3) AS "retainedFromMs"`,
    values: [id, token, Buffer.from(encodeKept(kept))],
  };
}

/** A completed record keeps its owner's token: only our own COMMIT puts it there. */
export function proofOfRecord(id: string, token: string): CommitProof {
  return {
    text: `SELECT extract(epoch FROM completed_at)::float8 * 1000 FROM idempotency_records
            WHERE id = $2 AND lease_owner = $3 AND status = 'completed'`,
    values: [id, token],
  };
}

/** Ours and in progress, or nothing: a zombie that comes late changes no row. */
export const RELEASE = `DELETE FROM idempotency_records
  WHERE account_id = $1 AND endpoint_hash = $2 AND key_hash = $3
    AND lease_owner = $4 AND status = 'in_progress'`;

export function releaseValues({ principal, endpoint, key, token }: Mutation): unknown[] {
  return [principal, hashOf(endpoint), hashOf(key), token];
}

/** Ours and in progress, or nothing. `created_at` stays: it says when the key was first used. */
export const RENEW = `UPDATE idempotency_records
  SET lease_expires_at = clock_timestamp() + $3::float8 * interval '1 millisecond'
  WHERE id = $1 AND lease_owner = $2 AND status = 'in_progress'`;

function hashOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
