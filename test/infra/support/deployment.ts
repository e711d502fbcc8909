import { join } from 'node:path';
import { vi } from 'vitest';
import { projectFolder } from '../../../infra/local/project.ts';
import { serveHttp } from './http-server.ts';

export const MIGRATIONS = join(projectFolder, 'shared', 'postgres', 'migrations');

/** What the SDK needs to go to a server of the test's own, and nowhere else. */
export function secretsEnvironment(url: string): Record<string, string> {
  return {
    AWS_ENDPOINT_URL_SECRETS_MANAGER: url,
    AWS_REGION: 'eu-central-1',
    AWS_ACCESS_KEY_ID: 'test',
    AWS_SECRET_ACCESS_KEY: 'test',
  };
}

/** Answers GetSecretValue with this secret, for this test. */
export async function secretsManager(
  secret: unknown,
  { keepEndpoint = false } = {},
): Promise<{ readonly url: string }> {
  const body = JSON.stringify({ SecretString: JSON.stringify(secret) });
  const server = await serveHttp(() => ({ status: 200, body }));
  const environment = secretsEnvironment(server.url);
  for (const [name, value] of Object.entries(environment)) {
    if (!(keepEndpoint && name.startsWith('AWS_ENDPOINT_URL'))) vi.stubEnv(name, value);
  }
  return server;
}
