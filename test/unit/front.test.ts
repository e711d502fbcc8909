/** The Redis client is loaded late, and the load may fail. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, inject, test } from 'vitest';
import { PATIENT } from '../support/patience.ts';
import { newKey } from '../support/requests.ts';

test('a load of the Redis client that fails costs that request its cache, and no other (core 18)', async () => {
  const program = join(import.meta.dirname, 'fixtures', 'failing-load.ts');
  const { stdout } = await promisify(execFile)(process.execPath, [program, newKey()], {
    env: {
      ...PATIENT,
      DATABASE_URL: 'postgres://host/db',
      REDIS_URL: inject('redisUrl'),
      BACKSTOP_NAMESPACE: 'test',
    },
  });
  expect(JSON.parse(stdout)).toEqual({
    before: 'unknown',
    after: 'claimed',
    counted: 1,
    errors: [{ error: 'Error: too many open files' }],
  });
});
