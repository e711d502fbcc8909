/** The store in DynamoDB, for state that is kept there too. */

export { type DynamoStoreOptions, dynamoStore } from './dynamo-store.ts';
export { createTable, type Item, type Table, type TableOptions } from './table.ts';
export {
  type DynamoTx,
  dynamoWork,
  type TableReader,
  type TransactionPlan,
  type Write,
} from './work.ts';
