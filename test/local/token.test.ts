import { join } from 'node:path';
import { decodeJwt } from 'jose';
import { expect, test } from 'vitest';
import { programResult } from './fixtures/program.ts';

const program = join(import.meta.dirname, '../../infra/local/token.ts');

test('the command prints a token for the name, good for twelve hours', async () => {
  const { code, stdout, stderr } = await programResult(program, ['alice']);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const claims = decodeJwt(stdout.trim());
  expect(claims).toMatchObject({
    sub: 'alice',
    iss: 'https://issuer.local.backstop.example/',
    aud: 'backstop-local',
  });
  expect((claims.exp ?? 0) - (claims.iat ?? 0)).toBe(12 * 3600);
});

test.each([[], [''], ['alice', 'bob'], ['--help']])(
  'the usage is the answer to %j',
  async (...words) => {
    const { code, stdout, stderr } = await programResult(program, words);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('npm run --silent token -- NAME');
  },
);
