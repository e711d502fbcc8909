/** A PostgreSQL from a copy of its package, for each reason to copy it: the long form of postgres.test.ts. */
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { programResult } from './fixtures/program.ts';
import { addPostgresPackage, copyProject, removeLinks } from './fixtures/project-copy.ts';

const program = join(import.meta.dirname, 'fixtures/postgres-program.ts');

test('Postgres starts from a project in a private folder, also as root, who runs it as nobody', async () => {
  const { copy } = await copyWithPackage();
  const result = await programResult(program, [join(copy.folder, 'infra/local')]);
  expect(result).toEqual({ code: 0, stdout: 'up\n', stderr: '' });
});

test('Postgres starts without the links that an install script should have made', async () => {
  const { copy, target } = await copyWithPackage();
  // Not private here: nothing but the missing links asks for a copy of the programs.
  await chmod(copy.folder, 0o755);
  await removeLinks(target);
  const result = await programResult(program, [join(copy.folder, 'infra/local')]);
  expect(result).toEqual({ code: 0, stdout: 'up\n', stderr: '' });
});

async function copyWithPackage() {
  const copy = await copyProject({ modules: 'none' });
  onTestFinished(copy.remove);
  return { copy, target: await addPostgresPackage(copy) };
}
