import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { DeleteTableCommand, PutItemCommand, paginateScan } from '@aws-sdk/client-dynamodb';
import { inject, test } from 'vitest';
import { prepareTable } from '../../infra/local/dynamodb-table.ts';
import { createTable, type Item, type Table } from '../../shared/dynamodb/index.ts';
import { eventually } from './waiting.ts';

/** It may have to be fetched first. */
const FOUND_WITHIN_MS = 240_000;

/**
 * Where DynamoDB is, once it answers; undefined, and a test that is skipped and says why,
 * where none can be had. In CI that is a failure.
 */
export async function dynamodbUrl(): Promise<string | undefined> {
  const url = inject('dynamodbUrl');
  const noDynamodbFile = inject('noDynamodbFile');
  const found = await eventually(
    async () => {
      if (existsSync(noDynamodbFile)) return { missing: readFileSync(noDynamodbFile, 'utf8') };
      return fetch(url).then(
        () => ({ url }),
        () => undefined,
      );
    },
    'DynamoDB',
    FOUND_WITHIN_MS,
  );
  if ('url' in found) return found.url;
  if (process.env['CI'])
    throw new Error(`CI needs a DynamoDB, and there is none: ${found.missing}`);
  test.skip(`there is no DynamoDB: ${found.missing}`, () => {});
  return undefined;
}

export interface TestTable {
  readonly name: string;
  readonly endpoint: string;
  /** Straight to the server, past every proxy. */
  readonly table: Table;
  item(pk: string): Promise<Item | undefined>;
  /** All whose partition key begins so. */
  items(prefix?: string): Promise<Item[]>;
  put(item: Item): Promise<void>;
  drop(): Promise<void>;
}

/** A table of the caller's own, as infra/table.yml has it. */
export async function createTestTable(endpoint: string): Promise<TestTable> {
  const name = `backstop_test_${randomUUID().replaceAll('-', '')}`;
  await prepareTable(endpoint, name);
  const table = tableAt(endpoint, name);
  return {
    name,
    endpoint,
    table,
    item: (pk) => table.get(pk),
    items: async (prefix = '') => {
      const found: Item[] = [];
      const pages = paginateScan(
        { client: table.client },
        { TableName: name, ConsistentRead: true },
      );
      for await (const { Items = [] } of pages) found.push(...Items);
      return found.filter(({ pk }) => pk?.S?.startsWith(prefix));
    },
    put: async (item) => {
      await table.client.send(new PutItemCommand({ TableName: name, Item: item }));
    },
    drop: async () => {
      await table.client.send(new DeleteTableCommand({ TableName: name }));
      table.close();
    },
  };
}

/** With time-outs that suit a machine that is busy with tests. */
export function tableAt(
  endpoint: string,
  name: string,
  timeouts: { readonly requestTimeoutMs?: number } = {},
): Table {
  return createTable({
    name,
    endpoint,
    connectTimeoutMs: 20_000,
    requestTimeoutMs: timeouts.requestTimeoutMs ?? 20_000,
  });
}
