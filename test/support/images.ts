/**
 * The container images that can stand in for this machine's own servers. localstack-compose.yml
 * names the same ones; a test holds the two together.
 */
export const IMAGES = {
  postgres: 'postgres:17',
  redis: 'valkey/valkey:8',
  dynamodb: 'amazon/dynamodb-local:2.5.4',
  /** The last tag that starts without a token. */
  localstack: 'localstack/localstack:4.14.0',
} as const;
