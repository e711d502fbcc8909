import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import * as own from '../../functions/problems.ts';
import { PROBLEM_KINDS } from '../../shared/index.ts';

const readme = readFileSync(`${import.meta.dirname}/../../README.md`, 'utf8');
const rows = readme.split('\n').filter((line) => /^\| \d{3}/.test(line));

/** Each row's codes, paired with its statuses: one for all of them, or one each in order. */
function documented(): [string, number][] {
  return rows.flatMap((row) => {
    const statuses = (/^\| ([\d ,]+)/.exec(row)?.[1] ?? '').match(/\d{3}/g)?.map(Number) ?? [];
    const codes = [...row.matchAll(/`([A-Z_]{3,})`/g)].map(([, code]) => code as string);
    return codes.map((code, n): [string, number] => [
      code,
      statuses[statuses.length === 1 ? 0 : n] ?? 0,
    ]);
  });
}

test('the README lists every problem code with its status, and none that does not exist', () => {
  const actual = Object.entries({ ...PROBLEM_KINDS, ...own }).map(([code, { status }]) => [
    code,
    status,
  ]);
  expect(documented().toSorted()).toEqual(actual.toSorted());
});

test('a code is retryable exactly where the README says that there is a Retry-After', () => {
  const retryable = rows
    .filter((row) => row.includes('| yes |'))
    .flatMap((row) => [...row.matchAll(/`([A-Z_]{3,})`/g)].map(([, code]) => code));
  const actual = Object.entries(PROBLEM_KINDS).flatMap(([code, kind]) =>
    kind.retryable ? [code] : [],
  );
  expect(retryable.toSorted()).toEqual(actual.toSorted());
});

test('every script that the README names exists', () => {
  const { scripts } = JSON.parse(readFileSync(`${import.meta.dirname}/../../package.json`, 'utf8'));
  const named = [...readme.matchAll(/npm run (?:--silent )?([a-z:]+)/g)].map(
    ([, name]) => name as string,
  );
  expect(named.length).toBeGreaterThan(3);
  for (const name of named) expect(scripts).toHaveProperty(name);
});
