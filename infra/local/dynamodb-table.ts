import {
  CreateTableCommand,
  DescribeTimeToLiveCommand,
  ResourceInUseException,
  UpdateTimeToLiveCommand,
  waitUntilTableExists,
} from '@aws-sdk/client-dynamodb';
import { TTL_ATTRIBUTE } from '../../shared/dynamodb/marker-item.ts';
import { createTable } from '../../shared/dynamodb/table.ts';

/** Creates the table of infra/table.yml at `endpoint`, unless it is there. */
export async function prepareTable(endpoint: string, name: string): Promise<void> {
  const table = createTable({ name, endpoint, connectTimeoutMs: 60_000, requestTimeoutMs: 60_000 });
  const { client } = table;
  try {
    await client.send(
      new CreateTableCommand({
        TableName: name,
        BillingMode: 'PAY_PER_REQUEST',
        AttributeDefinitions: [{ AttributeName: 'pk', AttributeType: 'S' }],
        KeySchema: [{ AttributeName: 'pk', KeyType: 'HASH' }],
      }),
    );
  } catch (error) {
    if (!(error instanceof ResourceInUseException)) throw error;
  }
  try {
    await waitUntilTableExists({ client, maxWaitTime: 600 }, { TableName: name });
    const { TimeToLiveDescription } = await client.send(
      new DescribeTimeToLiveCommand({ TableName: name }),
    );
    if (TimeToLiveDescription?.AttributeName === TTL_ATTRIBUTE) return;
    await client.send(
      new UpdateTimeToLiveCommand({
        TableName: name,
        TimeToLiveSpecification: { AttributeName: TTL_ATTRIBUTE, Enabled: true },
      }),
    );
  } finally {
    table.close();
  }
}
