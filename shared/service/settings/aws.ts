/** What signs a token in place of a password. */
import { ConfigError } from '../../core/config-error.ts';
import type { AwsCredentials } from '../../redis/elasticache-token.ts';
import type { Environment, Setting } from './component.ts';
import * as row from './row.ts';

export const AWS_REGION = row.text(
  'AWS_REGION',
  'The region that tokens are signed for, and where DynamoDB is. Lambda sets it.',
);

/** @param because the variable that asks for tokens. */
export function neededRegion(region: string | undefined, because: string): string {
  if (region !== undefined) return region;
  throw new ConfigError(
    `AWS_REGION is not set: with ${because}=iam a token is signed for one region. Set it to the region of the server, such as eu-central-1.`,
  );
}

/** Read anew at each call, since whoever runs this process may replace them. */
export const CREDENTIALS: Setting<() => AwsCredentials> = {
  ...row.text(
    'AWS_ACCESS_KEY_ID',
    'With `AWS_SECRET_ACCESS_KEY` and, for a role, `AWS_SESSION_TOKEN`: what `BACKSTOP_REDIS_AUTH=iam` signs tokens with. Lambda sets them.',
  ),
  read: (environment) => () => ({
    accessKeyId: credential(environment, 'AWS_ACCESS_KEY_ID'),
    secretAccessKey: credential(environment, 'AWS_SECRET_ACCESS_KEY'),
    sessionToken: environment['AWS_SESSION_TOKEN'] || undefined,
  }),
};

function credential(environment: Environment, name: string): string {
  const value = environment[name];
  if (value) return value;
  throw new ConfigError(
    `${name} is not set: with BACKSTOP_REDIS_AUTH=iam tokens are signed with the credentials in the environment. Lambda sets it; elsewhere set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN for a role).`,
  );
}
