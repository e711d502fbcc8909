/** The compiled template against AWS' own description of its resources: no account is needed for that. */
import { appendFile, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
import { TTL_ATTRIBUTE } from '../../shared/dynamodb/marker-item.ts';
import { copyProject } from '../local/fixtures/project-copy.ts';
import { checkProperties } from './support/check-properties.ts';
import { checkReferences } from './support/check-references.ts';
import { FOLDERS, migrationsIn } from './support/deployment.ts';
import { deployedFunctions } from './support/functions.ts';
import { packagedTemplate, runPackage } from './support/package-service.ts';
import { decided, ofType, propertiesOf, type Template } from './support/template.ts';

beforeAll(async () => {
  await Promise.all([packagedTemplate('own'), packagedTemplate('existing')]);
});

describe.each(['own', 'existing'] as const)('the template packaged with %s parts', (variant) => {
  test('every resource and property exists, with what it requires and of its type', async () => {
    const template = await packagedTemplate(variant);
    expect(Object.keys(template.Resources).length).toBeGreaterThan(90);
    expect(checkProperties(template)).toEqual([]);
  });

  test('every reference leads somewhere, and nothing waits for itself', async () => {
    expect(checkReferences(await packagedTemplate(variant))).toEqual([]);
  });
});

test('a part that is passed in is not made, and one that is not passed in is', async () => {
  const made = async (variant: 'own' | 'existing') =>
    new Set(Object.keys(decided(await packagedTemplate(variant)).Resources));
  const [own, existing] = [await made('own'), await made('existing')];
  const replaced = ['Vpc', 'SubnetA', 'S3Endpoint', 'DatabaseCluster', 'DatabaseProxy', 'Cache'];
  for (const id of replaced) {
    expect([id, own.has(id), existing.has(id)]).toEqual([id, true, false]);
  }
  expect([own.has('AlarmEmail'), existing.has('AlarmEmail')]).toEqual([false, true]);
  const { Resources } = decided(await packagedTemplate('existing'));
  expect(JSON.stringify(Resources['SpendCoinsLambdaFunction'])).toContain('"Host":"proxy.example"');
  expect(JSON.stringify(Resources['MigrateLambdaFunction'])).toContain('"Host":"writer.example"');
  const empty = Object.keys(Resources).filter((id) =>
    /:""|,""/.test(JSON.stringify(Resources[id])),
  );
  expect(empty).toEqual([]);
});

test.each([
  ['a type', /no type AWS::SQS::Queu$/, '"AWS::SQS::Queue"', '"AWS::SQS::Queu"'],
  ['a property', /SqsManagedSse: there is no such/, '"SqsManagedSseEnabled"', '"SqsManagedSse"'],
  [
    'a nested one',
    /RetryPolicy.MaximumRetrys/,
    '"RetryPolicy":{"MaximumRetryAttempts"',
    '"RetryPolicy":{"MaximumRetrys"',
  ],
  ['a value', /SPRINGSQL, none of MYSQL/, '"POSTGRESQL"', '"SPRINGSQL"'],
  [
    'text for a number',
    /BackupRetentionPeriod is no whole/,
    '"BackupRetentionPeriod":14',
    '"BackupRetentionPeriod":"14 days"',
  ],
  ['text for a truth', /RequireTLS is neither/, '"RequireTLS":true', '"RequireTLS":"yes"'],
  [
    'one for a list',
    /VpcSubnetIds: Ref is text/,
    /"VpcSubnetIds":\{"Fn::Split":.*?\]\}\]\},"/,
    '"VpcSubnetIds":{"Ref":"SubnetA"},"',
  ],
  ['what is required', /EngineFamily is missing/, '"EngineFamily":"POSTGRESQL",', ''],
])('the check sees %s that is planted wrong', async (_, seen, right, wrong) => {
  expect(checkProperties(await planted(right, wrong))).toEqual([expect.stringMatching(seen)]);
});

test.each([
  [
    'a Ref',
    /DatabaseProxi, which is not there/,
    '{"Ref":"DatabaseProxy"}',
    '{"Ref":"DatabaseProxi"}',
  ],
  [
    'an attribute',
    /DBProxy has no attribute Endpoints/,
    '["DatabaseProxy","Endpoint"]',
    '["DatabaseProxy","Endpoints"]',
  ],
  ['a name in a Sub', /HttpApy, which is not there/, '${HttpApi}', '${HttpApy}'],
  ['a dependency', /depends on S3Endpoints/, '"S3Endpoint",', '"S3Endpoints",'],
  ['a condition', /no condition OwnCash/, '"Condition":"OwnCache"', '"Condition":"OwnCash"'],
  ['an If', /no condition OwnCash/, '{"Fn::If":["OwnCache"', '{"Fn::If":["OwnCash"'],
  [
    'what may not be there',
    /Vpc, which is only there if OwnNetwork/,
    '{"Fn::If":["OwnNetwork",{"Ref":"Vpc"},""]}',
    '{"Ref":"Vpc"}',
  ],
  [
    'a circle',
    /a circle: .*PurgeRole/,
    '"QueueName":"backstop-dev-purge-dead-letters"',
    '"QueueName":{"Ref":"PurgeRole"}',
  ],
])('the check sees %s that is planted and leads nowhere', async (_, seen, right, wrong) => {
  expect(checkReferences(await planted(right, wrong))).toContainEqual(expect.stringMatching(seen));
});

async function planted(right: string | RegExp, wrong: string): Promise<Template> {
  const text = JSON.stringify(await packagedTemplate('own'));
  const changed = text.replace(right, () => wrong);
  expect(changed).not.toBe(text);
  return JSON.parse(changed);
}

test('each resource is declared in one file of infra/, or made by serverless for a function or the API', async () => {
  const folder = join(PROJECT_FOLDER, 'infra');
  const files = (await readdir(folder)).filter((name) => name.endsWith('.yml'));
  const declared: string[] = [];
  for (const name of files) {
    const text = await readFile(join(folder, name), 'utf8');
    const [, resources = ''] = text.split(/^Resources:\n/m);
    const [own = ''] = resources.split(/^\S/m);
    declared.push(...[...own.matchAll(/^ {2}(\w+):/gm)].map(([, id]) => id as string));
  }
  const require = createRequire(import.meta.url);
  const roles = require(join(folder, 'roles.cjs'));
  const { resources } = require(join(folder, 'purge-schedules.cjs'));
  const schedules = await resources({ resolveVariable: async () => '2' });
  declared.push(...Object.keys(roles.Resources), ...Object.keys(schedules.Resources));
  const { Resources } = await packagedTemplate('own');
  const made = Object.keys(Resources).filter((id) => !declared.includes(id));
  const byServerless =
    /^(ServerlessDeploymentBucket(Policy)?|HttpApi(LogGroup|Stage|AuthorizerCallers|Route\w+|Integration\w+)?|\w+(LambdaFunction|LogGroup|LambdaPermissionHttpApi))$/;
  expect(made.filter((id) => !byServerless.test(id))).toEqual([]);
  expect(declared.filter((id) => !(id in Resources))).toEqual([]);
  expect(new Set(declared).size).toBe(declared.length);
});

test('a resource that holds data outlives the stack', async () => {
  const template = await packagedTemplate('own');
  const policies = (type: string) =>
    ofType(template, type).map(([, one]) => [one.DeletionPolicy, one.UpdateReplacePolicy]);
  expect(policies('AWS::DynamoDB::Table')).toEqual([['Retain', 'Retain']]);
  expect(policies('AWS::RDS::DBCluster')).toEqual([['Snapshot', 'Snapshot']]);
});

test('the stores are encrypted, protected, and reached without a password', async () => {
  const template = await packagedTemplate('own');
  expect(propertiesOf(template, 'DatabaseCluster')).toMatchObject({
    StorageEncrypted: true,
    DeletionProtection: true,
    EnableIAMDatabaseAuthentication: true,
    ManageMasterUserPassword: true,
    BackupRetentionPeriod: 14,
    EnableCloudwatchLogsExports: ['postgresql'],
  });
  expect(propertiesOf(template, 'DatabaseCluster')).not.toHaveProperty('MasterUserPassword');
  expect(propertiesOf(template, 'DatabaseProxy')).toMatchObject({
    DefaultAuthScheme: 'IAM_AUTH',
    RequireTLS: true,
  });
  expect(propertiesOf(template, 'DynamoTable')).toMatchObject({
    DeletionProtectionEnabled: true,
    PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: true },
    TimeToLiveSpecification: { AttributeName: TTL_ATTRIBUTE, Enabled: true },
  });
  for (const [id] of ofType(template, 'AWS::Lambda::Function')) {
    const { Environment } = propertiesOf<{ Environment: { Variables: object } }>(template, id);
    expect([id, Environment.Variables]).toMatchObject([
      id,
      {
        DATABASE_URL: {
          'Fn::Sub': ['postgres://backstop_api@${Host}:5432/backstop?sslmode=verify-full', {}],
        },
        PURGE_DATABASE_URL: {
          'Fn::Sub': ['postgres://backstop_purge@${Host}:5432/backstop?sslmode=verify-full', {}],
        },
        BACKSTOP_DATABASE_AUTH: 'iam',
        REDIS_URL: { 'Fn::Sub': ['rediss://backstop-api-dev@${Host}:6379', {}] },
        BACKSTOP_REDIS_MODE: 'cluster',
        BACKSTOP_REDIS_AUTH: 'iam',
        DYNAMODB_TABLE: 'backstop-dev',
        BACKSTOP_NAMESPACE: 'backstop-dev',
        BACKSTOP_CACHE_EPOCH: '1',
      },
    ]);
  }
});

test('a stage without an issuer of its own is not packaged, and a sentence says why (deploy A2)', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'backstop-refused-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const refusal = await runPackage(join(folder, 'package'), ['--stage', 'prod'], {
    functions: 'empty',
  });
  for (const name of ['jwtIssuer', 'jwtAudience']) {
    expect(refusal).toContain(`The parameter ${name} is not set for this stage.`);
  }
  for (const variant of ['own', 'existing'] as const) {
    const { JwtConfiguration } = propertiesOf(
      await packagedTemplate(variant),
      'HttpApiAuthorizerCallers',
    );
    expect(JwtConfiguration).toEqual({
      Issuer: 'https://issuer.example/',
      Audience: ['some-client'],
    });
  }
});

test("nothing of the developer's own environment is deployed", async () => {
  expect(JSON.stringify(await packagedTemplate('own'))).not.toContain('developers-own');
  expect(JSON.stringify(await packagedTemplate('existing'))).not.toContain('developers-own');
});

test('the migrations are called again when they change, or the database does', async () => {
  const template = await packagedTemplate('own');
  const { Hash, Database } = propertiesOf<{ Hash: string; Database: unknown }>(
    template,
    'Migrations',
  );
  expect(JSON.stringify(Database)).toContain('["DatabaseCluster","Endpoint.Address"]');
  const project = await copyProject({ modules: 'none' });
  onTestFinished(() => project.remove());
  const hashOf = createRequire(import.meta.url)(join(project.folder, 'infra/migrations-hash.cjs'));
  expect(hashOf()).toBe(Hash);
  const hashes = new Set([Hash]);
  for (const folder of FOLDERS) {
    const file = `${migrationsIn(folder)[0]}.sql`;
    await appendFile(join(project.folder, folder, file), ' ');
    hashes.add(hashOf());
    await writeFile(join(project.folder, folder, '0099_more.sql'), '');
    hashes.add(hashOf());
  }
  expect(hashes.size).toBe(5);
});

test('no log is kept for ever', async () => {
  const template = await packagedTemplate('own');
  const logs = ofType(template, 'AWS::Logs::LogGroup');
  const ids = deployedFunctions().map(({ id }) => `${id}LogGroup`);
  expect(logs.map(([id]) => id)).toEqual(expect.arrayContaining(ids));
  const kept = logs.map(([id, { Properties }]) => [id, Properties?.['RetentionInDays']]);
  expect(kept).toEqual(logs.map(([id]) => [id, 30]));
});
