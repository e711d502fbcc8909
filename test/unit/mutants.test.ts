import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
import { MUTANTS } from '../mutants/mutants.ts';

test('every fault that `npm run mutants` plants still has its place', () => {
  const lost = MUTANTS.filter(({ file, from, all }) => {
    const places = readFileSync(join(PROJECT_FOLDER, file), 'utf8').split(from).length - 1;
    return all ? places === 0 : places !== 1;
  });
  expect(lost.map(({ id }) => id)).toEqual([]);
  expect(new Set(MUTANTS.map(({ id }) => id)).size).toBe(MUTANTS.length);
});

test('the tests that must catch a planted fault are there', () => {
  const gone = MUTANTS.flatMap(({ tests }) => tests).filter(
    (path) => !existsSync(join(PROJECT_FOLDER, path)),
  );
  expect(gone).toEqual([]);
});
