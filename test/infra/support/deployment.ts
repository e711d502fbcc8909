import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { vi } from 'vitest';
import { PROJECT_FOLDER } from '../../../infra/local/project.ts';
import { serveHttp } from './http-server.ts';

/** The library's, and the service's own. */
export const FOLDERS = ['shared/postgres/migrations', 'functions/migrations'] as const;

export const LIBRARY = join(PROJECT_FOLDER, FOLDERS[0]);

/** The migrations in a folder of the project, in order. */
export function migrationsIn(folder: string): string[] {
  return readdirSync(join(PROJECT_FOLDER, folder))
    .map((file) => basename(file, '.sql'))
    .sort();
}

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
