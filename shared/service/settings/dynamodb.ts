import { ConfigError } from '../../core/config-error.ts';
import { checkHttpUrl } from '../../core/server-urls.ts';
import { AWS_REGION } from './aws.ts';
import { REQUEST_TIMEOUT_MS } from './requests.ts';
import { component, judged, number, text, url, withDefault } from './setting.ts';

/** Two clocks that are five minutes off each, which is as far as AWS takes a signature. */
const TTL_SLACK_LEAST_MS = 2 * 300_000 + REQUEST_TIMEOUT_MS;

export const DYNAMODB = judged(
  component('DynamoDB', {
    endpoint: url(
      'DYNAMODB_ENDPOINT',
      'A DynamoDB Local; without it DynamoDB itself, in the region.',
      checkHttpUrl,
    ),
    awsRegion: AWS_REGION,
    table: withDefault(text('DYNAMODB_TABLE', 'The table of markers and effects.'), 'backstop'),
    retentionMs: number(
      'BACKSTOP_DYNAMO_RETENTION_MS',
      172_800_000,
      'ms',
      'How long a response in DynamoDB is replayed at the least.',
    ),
    ttlSlackMs: number(
      'BACKSTOP_DYNAMO_TTL_SLACK_MS',
      3_600_000,
      'ms',
      'How much later than that DynamoDB may delete it.',
    ),
    connectTimeoutMs: number(
      'BACKSTOP_DYNAMO_CONNECT_TIMEOUT_MS',
      1000,
      'ms',
      'For one connection.',
    ),
    requestTimeoutMs: number(
      'BACKSTOP_DYNAMO_REQUEST_TIMEOUT_MS',
      2000,
      'ms',
      "For one send; a lost one is sent again, within the request's time.",
    ),
  }),
  (dynamodb) => {
    if (dynamodb.ttlSlackMs < TTL_SLACK_LEAST_MS) {
      throw new ConfigError(
        `BACKSTOP_DYNAMO_TTL_SLACK_MS is ${dynamodb.ttlSlackMs}, less than ${TTL_SLACK_LEAST_MS} (two clocks, each five minutes off, and the longest request): DynamoDB could delete a marker before its retention is over. Set it to 3600000.`,
      );
    }
    return dynamodb;
  },
);
