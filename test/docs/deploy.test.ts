/** docs/deploy.md is read at night: what it names must be there, and every alarm must be in it. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
import { packagedTemplate } from '../infra/support/package-service.ts';
import { ofType, type Template } from '../infra/support/template.ts';

const read = (name: string) => readFile(join(PROJECT_FOLDER, name), 'utf8');

let template: Template;
let text: string;
beforeAll(async () => {
  template = await packagedTemplate('own');
  text = await read('docs/deploy.md');
});

test('every alarm has its section, and every section has its alarm', () => {
  const alarms = ofType(template, 'AWS::CloudWatch::Alarm').map(([id]) => id);
  const sections = [...text.matchAll(/^### (\w+)$/gm)].map(([, name]) => name);
  expect(sections.sort()).toEqual(alarms.sort());
});

test('the parameters are those of serverless.yml, and all that replace something are there', async () => {
  const [, defaults = ''] = (await read('serverless.yml')).split(/^ {2}default:\n/m);
  const [own = ''] = defaults.split(/^ {2}local:\n/m);
  const known = [...own.matchAll(/^ {4}(\w+):/gm)].map(([, name]) => name as string);
  const named = [...text.matchAll(/`((?:vpc|subnet|database|migrate|cache)\w+)`/g)].map(
    ([, name]) => name as string,
  );
  expect(named.filter((name) => !known.includes(name))).toEqual([]);
  const replacing = known.filter((name) => /^(vpc|subnet|database|migrate|cache)/.test(name));
  expect(replacing.filter((name) => !named.includes(name))).toEqual([]);
});

test('the clean-up after a failed first deployment deletes all that is left (deploy A4)', () => {
  const [, cleanUp = ''] = text.split('### After a first deployment that failed');
  const [section = ''] = cleanUp.split('\n## ');
  const left = ofType(template, 'AWS::DynamoDB::Table').concat(
    ofType(template, 'AWS::RDS::DBCluster'),
  );
  expect(left.map(([, { DeletionPolicy }]) => DeletionPolicy)).toEqual(['Retain', 'Snapshot']);
  for (const command of [
    'rds delete-db-proxy',
    'rds delete-db-instance',
    'rds delete-db-cluster',
    'rds delete-db-subnet-group',
    'dynamodb delete-table',
    'ec2 delete-vpc-endpoints',
    'ec2 delete-security-group',
    'ec2 delete-subnet',
    'ec2 delete-route-table',
    'ec2 delete-vpc',
    'logs delete-log-group',
    'serverless remove',
  ]) {
    expect(section).toContain(command);
  }
  expect(section).toContain('--no-deletion-protection\n');
  expect(section).toContain('--no-deletion-protection-enabled');
  expect(section).toContain('export AWS_REGION=');
});

test('the AWS CLI and serverless are given the region (deploy A4)', () => {
  expect(text.indexOf('export AWS_REGION=')).toBeLessThan(text.indexOf('aws lambda'));
  const ofServerless = text.match(/(npx serverless \w+|npm run deploy --)[^`\n]*/g) ?? [];
  expect(ofServerless.length).toBeGreaterThan(3);
  for (const command of ofServerless) expect(command).toContain('--region eu-central-1');
});

test('the pipeline is tried before it is trusted, and the switch is named where one looks (deploy A6)', async () => {
  const [, step = ''] = text.split('\n6. ');
  expect(step.split('\n### ')[0]).toMatch(/pipeline[\s\S]*`BACKSTOP_PIPELINE=off`/);
  for (const id of ['ApiErrorsAlarm', 'ProxyPinningAlarm']) {
    expect(template.Resources[id]?.Properties?.['AlarmDescription']).toContain(
      'BACKSTOP_PIPELINE=off',
    );
    const [, section = ''] = text.split(`### ${id}\n`);
    expect(section.split('\n###')[0]).toContain('pipeline=off');
  }
  for (const [, { Properties }] of ofType(template, 'AWS::Lambda::Function')) {
    expect(Properties).toMatchObject({ Environment: { Variables: { BACKSTOP_PIPELINE: 'on' } } });
  }
});

test('the stack is protected from being removed, and the text says what a removal does (deploy C2)', () => {
  const [first = '', after = ''] = text.split('## Upgrading and rolling back');
  expect(first).toContain(
    'aws cloudformation update-termination-protection --enable-termination-protection --stack-name backstop-prod',
  );
  expect(after).toMatch(/Removing the stack[\s\S]*both database instances are deleted first/);
});

test('the commands are scripts and functions that exist, and so are the files', async () => {
  const { scripts } = JSON.parse(await read('package.json')) as { scripts: Record<string, string> };
  const called = [...text.matchAll(/npm run (\w+)/g)].map(([, name]) => name as string);
  expect(called).toContain('deploy');
  expect(called.filter((name) => !(name in scripts))).toEqual([]);
  expect(template.Resources).toHaveProperty('MigrateLambdaFunction');
  const files = [...text.matchAll(/\]\(([^)#]+)\)/g)].map(([, path]) =>
    join('docs', path as string),
  );
  for (const file of files.filter((path) => /\.\w+$/.test(path))) await read(file);
});
