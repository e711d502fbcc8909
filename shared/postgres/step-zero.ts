/** Step 0: the first statement of every transaction of ours, whatever the store. */
import type { QueryResultRow } from 'pg';
import type { Mutation } from '../core/contract.ts';
import type { CommitProof } from './commit-fate.ts';
import { toMicros } from './microseconds.ts';
import type { Send } from './transaction.ts';

/** What step 0 answers. */
export interface Started {
  /** The transaction's number, by which its COMMIT can be looked up. */
  readonly xid: string;
  /** When step 0 made the claim, if it makes one: microseconds on the server's clock, as decimal text. */
  readonly claimedAtUs?: string;
}

/** Claims nothing: it only makes sure that this is a transaction, and that there is time left for it. */
export async function enterTransaction(send: Send, deadlineServerMs: number): Promise<Started> {
  const { rows } = await send<Started & QueryResultRow>(
    'SELECT enter_transaction(to_timestamp($1::float8 / 1000))::text AS xid',
    [deadlineServerMs],
  );
  return started(rows);
}

type Identity = Pick<Mutation, 'principal' | 'key'>;

/**
 * L2: the marker row, step 0 of the mutation's own transaction, unconditional.
 * Waits for a transaction that holds the same key, up to the deadline.
 *
 * @throws DatabaseError IDM01 when the key was used up, IDM02 past the deadline,
 * 55P03 or 57014 when another request still holds the key; see 0001_markers.sql.
 */
export async function claimMarker(
  send: Send,
  { principal, key }: Identity,
  deadlineServerMs: number,
): Promise<Started> {
  const { rows } = await send<Started & QueryResultRow>(
    `SELECT ${toMicros('claimed_at')}::text AS "claimedAtUs", xid
       FROM claim_marker($1, $2, to_timestamp($3::float8 / 1000))`,
    [principal, key, deadlineServerMs],
  );
  return started(rows);
}

/** Of a function of another release no NaN goes on, into a deadline or an expiry. */
function started(rows: readonly Started[]): Started {
  const [row] = rows;
  const isWhole = row && [row.xid, row.claimedAtUs ?? '0'].every((text) => /^\d+$/.test(text));
  if (isWhole) return row;
  throw new Error(
    'Step 0 did not answer a transaction number and a time: the schema is not the one of this release. Migrate the database.',
  );
}

/**
 * The row bears the number of the transaction that put it there (its xmin, since the claim never
 * stands behind a savepoint) and the claim's time.
 */
export function proofOfMarker({ principal, key }: Identity, { claimedAtUs }: Started): CommitProof {
  return {
    text: `SELECT extract(epoch FROM created_at)::float8 * 1000
             FROM player_mutation_idempotency
            WHERE user_id = $2 AND request_id = $3 AND xmin = $1::xid8::xid
              AND ${toMicros('created_at')} = $4::bigint`,
    values: [principal, key, claimedAtUs],
  };
}
