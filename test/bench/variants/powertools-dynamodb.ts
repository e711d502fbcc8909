import { DynamoDBPersistenceLayer } from '@aws-lambda-powertools/idempotency/dynamodb';
import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { processEnvironment, readSettings } from '../../../shared/service/settings.ts';
import { powertoolsHandler } from './powertools.ts';

const { endpoint, table } = readSettings('dynamodb', processEnvironment()).dynamodb;
const awsSdkV3Client = new DynamoDBClient({
  endpoint: endpoint as string,
  region: 'local',
  credentials: { accessKeyId: 'local', secretAccessKey: 'local' },
});

export const handler = powertoolsHandler(
  // The product's own table; its key and its TTL attribute have these names.
  new DynamoDBPersistenceLayer({
    tableName: table,
    keyAttr: 'pk',
    expiryAttr: 'expires_at',
    awsSdkV3Client,
  }),
);
