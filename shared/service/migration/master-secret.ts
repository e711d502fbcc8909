import { GetSecretValueCommand, SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import * as z from 'zod/mini';

const SECRET = z.object({ username: z.string(), password: z.string() });

export type Credentials = z.infer<typeof SECRET>;

/**
 * The master user's name and password, as RDS keeps them. Read anew each time: RDS changes
 * the password every week.
 *
 * @throws Error that says what to look at when there is no answer, as without an endpoint in
 * the VPC; never with what the secret holds.
 */
export async function readMasterSecret(arn: string): Promise<Credentials> {
  const client = new SecretsManagerClient({
    maxAttempts: 3,
    requestHandler: { connectionTimeout: 2000, requestTimeout: 5000 },
  });
  try {
    const { SecretString = '' } = await client.send(new GetSecretValueCommand({ SecretId: arn }));
    const parsed = SECRET.safeParse(JSON.parse(SecretString));
    if (parsed.success) return parsed.data;
    throw new Error('it has no username and password in it');
  } catch (error) {
    // A JSON error quotes what it could not read.
    const why = error instanceof SyntaxError ? 'it is no JSON' : (error as Error).message;
    throw new Error(
      `The master user's secret ${arn} cannot be read: ${why}. The function needs secretsmanager:GetSecretValue on it and a way to Secrets Manager (an endpoint in the VPC).`,
    );
  } finally {
    client.destroy();
  }
}
