import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { accessSync, constants, readdirSync, readFileSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import {
  DeleteTableCommand,
  DescribeTableCommand,
  DescribeTimeToLiveCommand,
} from '@aws-sdk/client-dynamodb';
import { expect, onTestFinished, test } from 'vitest';
import { prepareTable } from '../../infra/local/dynamodb-table.ts';
import { environment } from '../../infra/local/environment.ts';
import { CLUSTER_ARGUMENTS } from '../../infra/local/postgres.ts';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
import { TTL_ATTRIBUTE } from '../../shared/dynamodb/marker-item.ts';
import { dynamodbUrl, tableAt } from '../support/dynamodb.ts';
import { IMAGES } from '../support/images.ts';
import { asWritten, composeFile, deployedTable, schemaErrors } from './fixtures/compose-file.ts';

const { services } = composeFile();
const each = Object.entries(services);
const endpoint = await dynamodbUrl();

test("localstack-compose.yml is a Compose file by the specification's own schema", () => {
  expect(schemaErrors(composeFile())).toBeNull();
  const misspelt = { services: { redis: { image: 'x', healthchek: {} } } };
  expect(schemaErrors(misspelt)).toMatchObject([
    { instancePath: '/services/redis', params: { additionalProperty: 'healthchek' } },
  ]);
});

test('its images are those of the tests, each with a tag, and LOCALSTACK_IMAGE overrides one', () => {
  expect(each.map(([name, { image }]) => [name, image])).toEqual([
    ['postgres', IMAGES.postgres],
    ['redis', IMAGES.redis],
    ['localstack', IMAGES.localstack],
  ]);
  for (const image of Object.values(IMAGES)) expect(image).toMatch(/:\d[\w.]*$/);
  expect(IMAGES.localstack).toBe('localstack/localstack:4.14.0');
  const other = composeFile({ LOCALSTACK_IMAGE: 'mirror.example/localstack:4.14.0' });
  expect(other.services.localstack.image).toBe('mirror.example/localstack:4.14.0');
});

test('each port is published for this machine alone, and can be chosen', () => {
  expect(each.map(([name, { ports }]) => [name, ports])).toEqual([
    ['postgres', ['127.0.0.1:5432:5432']],
    ['redis', ['127.0.0.1:6379:6379']],
    ['localstack', ['127.0.0.1:4566:4566']],
  ]);
  const chosen = { POSTGRES_PORT: '1', REDIS_PORT: '2', LOCALSTACK_PORT: '3' };
  expect(Object.values(composeFile(chosen).services).flatMap(({ ports }) => ports)).toEqual([
    '127.0.0.1:1:5432',
    '127.0.0.1:2:6379',
    '127.0.0.1:3:4566',
  ]);
});

test('each service has a check of its health', () => {
  const programs = each.map(([name, { healthcheck }]) => [name, healthcheck.test.slice(0, 2)]);
  expect(Object.fromEntries(programs)).toEqual({
    postgres: ['CMD', 'pg_isready'],
    redis: ['CMD', 'valkey-cli'],
    localstack: ['CMD-SHELL', expect.stringContaining('/_localstack/init/ready')],
  });
  // While the image prepares the database, a server answers on the socket, and soon ends.
  expect(services.postgres.healthcheck.test.join(' ')).toContain('-h 127.0.0.1');
});

test('Postgres is made as npm start makes it, with room for every pool', () => {
  expect(services.postgres.environment?.['POSTGRES_INITDB_ARGS']).toBe(CLUSTER_ARGUMENTS.join(' '));
  expect(services.postgres.command?.join(' ')).toContain('max_connections=200');
});

test('docs/docker.md gives the addresses, the ports and the images of what it starts', () => {
  const docs = readFileSync(join(PROJECT_FOLDER, 'docs', 'docker.md'), 'utf8');
  const { POSTGRES_PASSWORD: password, POSTGRES_DB: database } =
    services.postgres.environment ?? {};
  const at = (name: keyof typeof services) => services[name].ports[0]?.replace(/:\d+$/, '');
  expect(docs).toContain(
    `DATABASE_URL=postgres://postgres:${password}@${at('postgres')}/${database} `,
  );
  expect(docs).toContain(`REDIS_URL=redis://${at('redis')} `);
  expect(docs).toContain(`DYNAMODB_ENDPOINT=http://${at('localstack')} npm start`);
  for (const image of Object.values(IMAGES)) expect(docs).toContain(`\`${image}\``);
});

test('nothing is kept in a named volume, and what is mounted is a folder of this project', () => {
  expect(asWritten.volumes).toBeUndefined();
  const mounted = each.flatMap(([, { volumes = [] }]) => volumes);
  expect(mounted).toEqual(['./infra/localstack/ready.d:/etc/localstack/init/ready.d:ro']);
});

test('LocalStack finds the one hook where it looks for it, as it runs it', () => {
  const [folder = ''] = services.localstack.volumes?.[0]?.split(':') ?? [];
  const hooks = readdirSync(join(PROJECT_FOLDER, folder));
  // A second one would let the health check answer before the table is there.
  expect(hooks.map((name) => join(folder, name))).toEqual([HOOK]);
  expect(HOOK).toMatch(/\.sh$/);
  expect(readFileSync(join(PROJECT_FOLDER, HOOK), 'utf8')).toMatch(/^#!\/bin\/sh\n/);
  expect(() => accessSync(join(PROJECT_FOLDER, HOOK), constants.X_OK)).not.toThrow();
});

test.skipIf(!endpoint)('the hook makes the table that is deployed, once', async () => {
  const name = `backstop_test_${randomUUID().replaceAll('-', '')}`;
  await runHook(name);
  const made = await describe(name);
  const { BillingMode, TimeToLiveSpecification, ...keys } = deployedTable();
  expect(made).toMatchObject({
    keys: { KeySchema: keys.KeySchema, AttributeDefinitions: keys.AttributeDefinitions },
    billing: BillingMode,
    ttl: { AttributeName: TTL_ATTRIBUTE, TimeToLiveStatus: 'ENABLED' },
  });
  expect(TimeToLiveSpecification).toEqual({ AttributeName: TTL_ATTRIBUTE, Enabled: true });
  // And npm start, which may come first or second, makes the same.
  const ours = `${name}_ours`;
  await prepareTable(endpoint as string, ours);
  expect(await describe(ours)).toEqual(made);
  await runHook(name);
  await runHook(ours);
  await prepareTable(endpoint as string, name);
  expect(await describe(name)).toEqual(made);
});

const HOOK = 'infra/localstack/ready.d/create-table.sh';
const CLI = join(import.meta.dirname, 'fixtures', 'awslocal.ts');

/** As LocalStack runs it: as a program, without arguments. Throws when it fails. */
async function runHook(table: string): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'backstop-test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const cli = join(folder, 'awslocal');
  await writeFile(cli, `#!/bin/sh\nexec '${process.execPath}' '${CLI}' "$@"\n`);
  await chmod(cli, 0o755);
  const PATH = `${folder}:${environment().PATH}`;
  const { NODE_COMPILE_CACHE } = environment();
  const env = { PATH, NODE_COMPILE_CACHE, DYNAMODB_ENDPOINT: endpoint, DYNAMODB_TABLE: table };
  const cwd = join(PROJECT_FOLDER, dirname(HOOK));
  await promisify(execFile)(`./${basename(HOOK)}`, [], { cwd, env });
}

async function describe(name: string) {
  const table = tableAt(endpoint as string, name);
  onTestFinished(async () => {
    await table.client.send(new DeleteTableCommand({ TableName: name })).catch(() => {});
    table.close();
  });
  const { Table } = await table.client.send(new DescribeTableCommand({ TableName: name }));
  const ttl = await table.client.send(new DescribeTimeToLiveCommand({ TableName: name }));
  return {
    keys: { KeySchema: Table?.KeySchema, AttributeDefinitions: Table?.AttributeDefinitions },
    billing: Table?.BillingModeSummary?.BillingMode,
    ttl: ttl.TimeToLiveDescription,
  };
}
