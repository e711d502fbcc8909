/** Every case that a title names is in test/cases.md, and every one there is named by a title. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';

const CASE = '(?:C\\d{2,3}|(?:core|library|deploy|house) [A-Z]?\\d+)';
const IN_BRACKETS = new RegExp(`\\(${CASE}(?:, ${CASE})*\\)`, 'g');
/** A first argument of `test`, `describe` or their `each`, with a function or options behind it. */
const TITLE =
  /(?:\b(?:test|describe)(?:\.\w+)*|\))\(\s*(['"`])((?:\\.|(?!\1)[^\\\n])+)\1,\s*(?:async\b|\(|\w+ =>|\{)/g;

const folder = join(PROJECT_FOLDER, 'test');
const sources = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => ({ name, text: readFileSync(join(folder, name), 'utf8') }));
const titles = sources.flatMap(({ name, text }) =>
  [...text.matchAll(TITLE)].map(([, , title = '']) => ({ name, title })),
);

const casesIn = (text: string): string[] =>
  [...new Set(text.match(new RegExp(`\\b${CASE}\\b`, 'g')))].sort();

test('test/cases.md defines exactly the cases that the tests name', () => {
  const list = readFileSync(join(folder, 'cases.md'), 'utf8');
  const defined = [...list.matchAll(/^- \*\*(.+?)\*\* \S/gm)].map(([, name = '']) => name).sort();
  const text = sources.map((source) => source.text).join('\n');
  // In a comment a case may be mentioned; a test of it says so in brackets.
  expect(casesIn(text)).toEqual(defined);
  expect(casesIn((text.match(IN_BRACKETS) ?? []).join())).toEqual(defined);
});

test('a title names its cases in brackets', () => {
  const rest = ({ title }: { title: string }) => title.replaceAll(IN_BRACKETS, '');
  expect(titles.filter((each) => casesIn(rest(each)).length > 0)).toEqual([]);
});

test('a title has three words or more', () => {
  // The expression above still finds them.
  expect(titles.length).toBeGreaterThan(900);
  expect(titles.filter(({ title }) => title.split(' ').length < 3)).toEqual([]);
});
