import { ConfigError } from '../../core/config-error.ts';
import { checkHttpUrl } from '../../core/server-urls.ts';
import { AWS_REGION } from './aws.ts';
import { component, judged } from './component.ts';
import { REQUEST_TIMEOUT_MS } from './requests.ts';
import * as row from './row.ts';

/** Two clocks that are five minutes off each, which is as far as AWS takes a signature. */
const TTL_SLACK_LEAST_MS = 2 * 300_000 + REQUEST_TIMEOUT_MS;

// biome-ignore format: a table, with a row on each line
const TABLE = component('DynamoDB', {
  endpoint: row.url('DYNAMODB_ENDPOINT', checkHttpUrl, 'A DynamoDB Local; without it DynamoDB itself, in the region.'),
  awsRegion: AWS_REGION,
  table: row.withDefault(row.text('DYNAMODB_TABLE', 'The table of the markers, and of what they protect.'), 'backstop'),
  retentionMs: row.ms('BACKSTOP_DYNAMO_RETENTION_MS', 172_800_000, 'How long a response in DynamoDB is replayed at the least.'),
  ttlSlackMs: row.ms('BACKSTOP_DYNAMO_TTL_SLACK_MS', 3_600_000, 'How much later than that DynamoDB may delete it.'),
  connectTimeoutMs: row.ms('BACKSTOP_DYNAMO_CONNECT_TIMEOUT_MS', 1000, 'For one connection.'),
  requestTimeoutMs: row.ms('BACKSTOP_DYNAMO_REQUEST_TIMEOUT_MS', 2000, "For one send; a lost one is sent again, within the request's time."),
});

export const DYNAMODB = judged(TABLE, (dynamodb) => {
  if (dynamodb.ttlSlackMs >= TTL_SLACK_LEAST_MS) return dynamodb;
  throw new ConfigError(
    `BACKSTOP_DYNAMO_TTL_SLACK_MS is ${dynamodb.ttlSlackMs}, less than ${TTL_SLACK_LEAST_MS} (two clocks, each five minutes off, and the longest request): DynamoDB could delete a marker before its retention is over. Set it to 3600000.`,
  );
});
