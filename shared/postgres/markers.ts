import type { QueryResultRow } from 'pg';
import type { Mutation } from '../idempotency/contract.ts';
import type { Entered } from './attempt.ts';
import type { Mark } from './commit-fate.ts';
import type { Send } from './transaction.ts';

type Identity = Pick<Mutation, 'principal' | 'key'>;

/**
 * L2: the marker row, step 0 of the mutation's own transaction, unconditional.
 * Waits for a transaction that holds the same key, up to the deadline.
 *
 * @throws DatabaseError IDM01 when the key was used up, IDM02 past the deadline,
 * 55P03 or 57014 when another request still holds the key; see 0001_tables.sql.
 */
export async function claimMarker(
  send: Send,
  { principal, key }: Identity,
  deadlineServerMs: number,
): Promise<Entered> {
  const { rows } = await send<Entered & QueryResultRow>(
    `SELECT ${microsecondsOf('claimed_at')} AS "claimedAtUs", xid
       FROM claim_marker($1, $2, to_timestamp($3::float8 / 1000))`,
    [principal, key, deadlineServerMs],
  );
  return rows[0] as Entered;
}

/**
 * The row bears the number of the transaction that put it there (its xmin, since the claim never
 * stands behind a savepoint) and the claim's time.
 */
export function markOfMarker({ principal, key }: Identity, { claimedAtUs }: Entered): Mark {
  return {
    text: `SELECT extract(epoch FROM created_at)::float8 * 1000
             FROM player_mutation_idempotency
            WHERE user_id = $2 AND request_id = $3 AND xmin = $1::xid8::xid
              AND ${microsecondsOf('created_at')} = $4`,
    values: [principal, key, claimedAtUs],
  };
}

/** A time as it can be compared: as float8, one in four differs from itself by a rounding. */
function microsecondsOf(timestamptz: string): string {
  return `(extract(epoch FROM ${timestamptz}) * 1000000)::bigint::text`;
}
