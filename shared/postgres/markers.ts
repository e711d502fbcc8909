import type { QueryResultRow } from 'pg';
import type { Mutation } from '../core/contract.ts';
import type { Entered } from './attempt.ts';
import type { Mark } from './commit-fate.ts';
import { toMicros } from './microseconds.ts';
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
    `SELECT ${toMicros('claimed_at')}::text AS "claimedAtUs", xid
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
              AND ${toMicros('created_at')} = $4::bigint`,
    values: [principal, key, claimedAtUs],
  };
}
