/** What is uploaded: each function's zip file, unpacked elsewhere and run from there. */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { FOLDERS, migrationsIn, secretsEnvironment, secretsManager } from './support/deployment.ts';
import { createEmptyDatabase } from './support/empty-database.ts';
import { deployedFunctions } from './support/functions.ts';
import { serveHttp } from './support/http-server.ts';
import { bundlesFolder } from './support/package-service.ts';
import { unzip } from './support/unzip.ts';

const functions = deployedFunctions();

const SERVICE = { DATABASE_URL: 'postgres://backstop_api@127.0.0.1:9/backstop' };

let folder: string;
beforeAll(async () => {
  folder = await bundlesFolder();
});

test('each function is packaged by itself', async () => {
  const zips = (await readdir(folder)).filter((name) => name.endsWith('.zip'));
  expect(zips.sort()).toEqual(functions.map(({ name }) => `${name}.zip`).sort());
});

test.each(functions)('$name loads from its package alone', async ({ name, module }) => {
  const { unpacked } = await unpack(name);
  const loaded = await run(unpacked, `${module}.mjs`, SERVICE, 'typeof handler');
  expect(loaded).toBe('function');
});

test.each([
  ['getPlayer', ['SecretsManager', 'DynamoDB_20120810', 'node-pg-migrate']],
  ['getBadges', ['SecretsManager', 'node-pg-migrate']],
  ['purge', ['SecretsManager', 'DynamoDB_20120810', 'node-pg-migrate']],
])('%s is deployed without what it never uses', async (name, never) => {
  const { unpacked } = await unpack(name);
  const { module } = functions.find((one) => one.name === name) ?? {};
  const code = await readFile(join(unpacked, `${module}.mjs`), 'utf8');
  for (const part of never) expect([part, code.includes(part)]).toEqual([part, false]);
  expect((await stat(join(folder, `${name}.zip`))).size).toBeLessThan(2_000_000);
});

test('migrate carries every migration, and migrates a real database from its package', async () => {
  const { unpacked, names } = await unpack('migrate');
  const migrations = FOLDERS.flatMap((folder) =>
    migrationsIn(folder).map((name) => `${folder}/${name}.sql`),
  );
  expect(names.filter((name) => name.endsWith('.sql')).sort()).toEqual(migrations.sort());

  const db = await createEmptyDatabase();
  const secrets = await secretsManager(db.master);
  const waiting = await serveHttp(() => ({ status: 200 }));
  const event = {
    RequestType: 'Create',
    ResponseURL: waiting.url,
    StackId: 'stack',
    RequestId: 'request',
    LogicalResourceId: 'Migrations',
  };
  const environment = {
    ...secretsEnvironment(secrets.url),
    MIGRATE_DATABASE_URL: db.bareUrl,
    MIGRATE_SECRET_ARN: 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:master',
  };
  const call = `JSON.stringify(await handler(${JSON.stringify(event)}, { getRemainingTimeInMillis: () => 60000 }))`;
  const answer = JSON.parse(
    await run(unpacked, 'functions/operations/migrate.mjs', environment, call),
  );
  expect(answer.applied.length).toBe(migrations.length);
  expect(waiting.received.map(({ body }) => JSON.parse(body))).toMatchObject([
    { Status: 'SUCCESS', PhysicalResourceId: 'backstop-migrations' },
  ]);
  const recorded = await db.sql(
    'SELECT name FROM backstop_migrations UNION ALL SELECT name FROM service_migrations',
  );
  expect(recorded.length).toBe(migrations.length);
});

async function unpack(name: string): Promise<{ unpacked: string; names: string[] }> {
  const unpacked = await mkdtemp(join(tmpdir(), 'backstop-unpacked-'));
  onTestFinished(() => rm(unpacked, { recursive: true }));
  return { unpacked, names: await unzip(join(folder, `${name}.zip`), unpacked) };
}

/** The last line that a process in this folder prints, with this environment and no other. */
async function run(
  cwd: string,
  module: string,
  environment: Record<string, string>,
  expression: string,
): Promise<string> {
  const script = `const { handler } = await import('./${module}');
    process.stdout.write('\\n' + (${expression}) + '\\n'); process.exit(0);`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', script],
    { cwd, env: { ...environment, AWS_REGION: 'eu-central-1' } },
  );
  return stdout.trim().split('\n').at(-1) ?? '';
}
