import { parseIntoClientConfig } from 'pg-connection-string';

/**
 * What a role with `rds_iam` signs in with, in place of a password: a token for the user,
 * host and port of `url`. It holds for 15 minutes and is looked at only when a connection
 * is made, so each connection gets its own.
 *
 * The signer is loaded with the first one: whoever signs in otherwise never pays for it.
 */
export function rdsToken(url: string, region: string): () => Promise<string> {
  const { host: hostname = '', port = 5432, user: username = '' } = parseIntoClientConfig(url);
  return async () => {
    const { Signer } = await import('@aws-sdk/rds-signer');
    return new Signer({ hostname, port, username, region }).getAuthToken();
  };
}
