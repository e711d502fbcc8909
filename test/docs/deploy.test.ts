/** docs/deploy.md is read at night: what it names must be there, and every alarm must be in it. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { projectFolder } from '../../infra/local/project.ts';
import { PACKAGING_TIMEOUT_MS, packagedTemplate } from '../infra/support/package-service.ts';
import { ofType, type Template } from '../infra/support/template.ts';

const read = (name: string) => readFile(join(projectFolder, name), 'utf8');

let template: Template;
let text: string;
beforeAll(async () => {
  template = await packagedTemplate('own');
  text = await read('docs/deploy.md');
}, PACKAGING_TIMEOUT_MS);

test('every alarm has its section, and every section its alarm', () => {
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

test('the commands are scripts and functions that exist, the files too', async () => {
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
