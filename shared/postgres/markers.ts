import type { QueryResultRow } from 'pg';
import type { Mutation } from '../idempotency/contract.ts';
import type { Send } from './transaction.ts';

/** What a successful claim says. */
export interface MarkerClaim extends QueryResultRow {
  /** On the server's clock; the retention counts from here. */
  readonly createdAtMs: number;
  /** The claiming transaction, by which its COMMIT can be looked up. */
  readonly xid: string;
}

/**
 * L2: the marker row, step 0 of the mutation's own transaction, unconditional.
 * Waits for a transaction that holds the same key, up to the deadline.
 *
 * @throws DatabaseError IDM01 when the key was used up, IDM02 past the deadline,
 * 55P03 or 57014 when another request still holds the key; see 0001_tables.sql.
 */
export async function claimMarker(
  send: Send,
  mutation: Pick<Mutation, 'principal' | 'key'>,
  deadlineServerMs: number,
): Promise<MarkerClaim> {
  const { rows } = await send<MarkerClaim>(
    `SELECT created_at_ms AS "createdAtMs", xid
       FROM claim_marker($1, $2, to_timestamp($3::float8 / 1000))`,
    [mutation.principal, mutation.key, deadlineServerMs],
  );
  return rows[0] as MarkerClaim;
}
