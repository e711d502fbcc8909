/** What signs a token in place of a password. */
import { ConfigError } from '../../core/config-error.ts';
import type { AwsCredentials } from '../../redis/elasticache-token.ts';
import { type Setting, text } from './setting.ts';

export const AWS_REGION = text(
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

/** Read anew at each call, since whoever runs this process may replace it. */
function live(name: string, about: string): Setting<() => string | undefined> {
  return { ...text(name, about), read: (environment) => () => environment[name] || undefined };
}

export const CREDENTIALS = {
  accessKeyId: live(
    'AWS_ACCESS_KEY_ID',
    'With `BACKSTOP_REDIS_AUTH=iam`: what tokens are signed with, read for each. Lambda sets it.',
  ),
  secretAccessKey: live('AWS_SECRET_ACCESS_KEY', 'Likewise.'),
  sessionToken: live(
    'AWS_SESSION_TOKEN',
    "Likewise, of a role; a user's long-lived keys have none.",
  ),
};

/** @throws ConfigError when there are none now. */
export function currentCredentials(
  read: Readonly<Record<keyof typeof CREDENTIALS, () => string | undefined>>,
): AwsCredentials {
  const needed = (name: 'accessKeyId' | 'secretAccessKey'): string => {
    const value = read[name]();
    if (value !== undefined) return value;
    throw new ConfigError(
      `${CREDENTIALS[name].name} is not set: with BACKSTOP_REDIS_AUTH=iam tokens are signed with the credentials in the environment. Lambda sets it; elsewhere set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN for a role).`,
    );
  };
  return {
    accessKeyId: needed('accessKeyId'),
    secretAccessKey: needed('secretAccessKey'),
    sessionToken: read.sessionToken(),
  };
}
