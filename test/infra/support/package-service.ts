/**
 * The service, packaged as a deployment would do it, without an account: a copy of the project
 * in a folder of its own, and an environment without credentials. Once for a whole run: the
 * first test file that asks does it, the others wait.
 */
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { inject } from 'vitest';
import { copyProject } from '../../local/fixtures/project-copy.ts';
import { eventually } from '../../support/waiting.ts';
import type { Template } from './template.ts';

const CALLERS = ['jwtIssuer=https://issuer.example/', 'jwtAudience=some-client'];

/** Each of its own stage: nothing that they share is told apart by anything else. */
const STAGES = { own: 'dev', existing: 'prod', local: 'local' } as const;

const PARAMS = {
  /** Everything is made. */
  own: CALLERS,
  /** Network, database and cache are there already. */
  existing: [
    ...CALLERS,
    'vpcId=vpc-0a1',
    'subnetIds=subnet-0a1,subnet-0b2,subnet-0c3',
    'databaseHost=proxy.example',
    'databaseResourceId=prx-0123',
    'databaseSecurityGroupId=sg-0a1',
    'databaseSecretArn=arn:aws:secretsmanager:eu-central-1:123456789012:secret:master',
    'migrateHost=writer.example',
    'cacheHost=cache.example',
    'cacheName=shared-cache',
    'cacheUser=their-user',
    'cacheSecurityGroupId=sg-0c3',
    'alarmEmail=somebody@example.com',
    'purgeWorkers=3',
  ],
  local: [],
} as const;

/** What a developer may have set for `npm start`; none of it may reach a deployment. */
const DEVELOPERS = {
  DATABASE_URL: 'postgres://developers-own/backstop',
  PURGE_DATABASE_URL: 'postgres://developers-own/backstop',
  REDIS_URL: 'redis://developers-own',
  DYNAMODB_ENDPOINT: 'http://developers-own',
  DYNAMODB_TABLE: 'developers-own',
  BACKSTOP_KEY_MODE: 'developers-own',
  BACKSTOP_POOL_MAX: 'developers-own',
};

export type Variant = keyof typeof STAGES;

/** The compiled template. */
export async function packagedTemplate(variant: Variant): Promise<Template> {
  const folder = await packagedFolder(variant);
  const file = join(folder, 'cloudformation-template-update-stack.json');
  return JSON.parse(await readFile(file, 'utf8'));
}

/** The folder with the template and each function's zip file, as it is uploaded. */
export function bundlesFolder(): Promise<string> {
  return packagedFolder('own');
}

async function packagedFolder(variant: Variant): Promise<string> {
  const folder = join(inject('packageFolder'), variant);
  const outcomeFile = `${folder}.outcome`;
  const isOurs = await mkdir(`${folder}.lock`, { recursive: false }).then(
    () => true,
    () => false,
  );
  if (isOurs) await writeFile(outcomeFile, await packageInto(folder, variant));
  const outcome = await eventually(
    // It is there, and empty, for a moment before it is written.
    () =>
      readFile(outcomeFile, 'utf8').then(
        (text) => text || undefined,
        () => undefined,
      ),
    `the ${variant} package`,
  );
  if (outcome !== 'ok') throw new Error(`npm run package (${variant}) failed: ${outcome}`);
  return folder;
}

/** The template does not hang on what is in a function, and bundling it takes longest. */
async function emptyFunctions(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.name.endsWith('.ts')) continue;
    await writeFile(join(entry.parentPath, entry.name), 'export const handler = () => {};\n');
  }
}

async function packageInto(folder: string, variant: Variant): Promise<string> {
  const params = PARAMS[variant].flatMap((param) => ['--param', param]);
  return runPackage(folder, ['--stage', STAGES[variant], ...params], {
    functions: variant === 'own' ? 'whole' : 'empty',
  });
}

/** @returns `ok`, or all that was said. */
export async function runPackage(
  folder: string,
  options: readonly string[],
  { functions }: { readonly functions: 'whole' | 'empty' },
): Promise<string> {
  const project = await copyProject({ modules: 'link' });
  const home = `${folder}.home`;
  const { PATH, NODE_COMPILE_CACHE } = process.env;
  try {
    await mkdir(home);
    if (functions === 'empty') await emptyFunctions(join(project.folder, 'functions'));
    await promisify(execFile)(
      'npm',
      ['run', '--silent', 'package', '--', '--package', folder, ...options],
      // Nothing else: no credentials, no region, no profile.
      { cwd: project.folder, env: { PATH, NODE_COMPILE_CACHE, HOME: home, ...DEVELOPERS } },
    );
    return 'ok';
  } catch (error) {
    const { message, stdout, stderr } = error as Error & { stdout?: string; stderr?: string };
    return [message, stdout, stderr].join('\n');
  } finally {
    await project.remove();
  }
}
