import type { TransactWriteItem } from '@aws-sdk/client-dynamodb';
import type { Work } from '../core/contract.ts';
import type { Table } from './table.ts';

/**
 * One item of the transaction: `{ Put }`, `{ Update }`, `{ Delete }` or
 * `{ ConditionCheck }`. Its condition guards what the work has read: when it fails,
 * all is undone and the work runs again on a fresh read.
 */
export type Write = TransactWriteItem;

/** What the work came to: nothing of it is written before it is returned. */
export interface TransactionPlan<Returned> {
  /** 99 at most: DynamoDB takes 100 items in a transaction, and one is the marker. */
  readonly writes: readonly Write[];
  /** A refusal (over HTTP a 4xx) is kept without the writes. */
  readonly response: Returned;
}

/** What the work may do by itself: read. (`name` is for its writes.) */
export type TableReader = Pick<Table, 'name' | 'get'>;

export interface DynamoTx extends TableReader {
  /** For `dynamoWork`, which hands on what the work has returned. */
  plan(writes: readonly Write[]): void;
}

/**
 * The work of a mutation in DynamoDB, as `once` takes it. `plan` reads, and
 * returns what is to be written and answered; it makes no effect by itself.
 *
 * Throw VERSION_MISMATCH where the client named a version (`If-Match`) and the item
 * has another.
 */
export function dynamoWork<Returned>(
  plan: (table: TableReader) => Promise<TransactionPlan<Returned>>,
): Work<DynamoTx, Returned> {
  return async (tx) => {
    const { writes, response } = await plan(tx);
    tx.plan(writes);
    return response;
  };
}
