import { DynamoDBPersistenceLayer } from '@aws-lambda-powertools/idempotency/dynamodb';
import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { loadConfig } from '../../../shared/service/config.ts';
import { powertoolsHandler } from './powertools.ts';

const { dynamoEndpoint, dynamoTable } = loadConfig();
const awsSdkV3Client = new DynamoDBClient({
  endpoint: dynamoEndpoint as string,
  region: 'local',
  credentials: { accessKeyId: 'local', secretAccessKey: 'local' },
});

export const handler = powertoolsHandler(
  // The product's own table; its key and its TTL attribute have these names.
  new DynamoDBPersistenceLayer({
    tableName: dynamoTable,
    keyAttr: 'pk',
    expiryAttr: 'expires_at',
    awsSdkV3Client,
  }),
);
