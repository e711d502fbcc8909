/** The Redis client is loaded late, and the load may fail. */
import { expect, onTestFinished, test, vi } from 'vitest';
import { loadConfig } from '../../shared/config.ts';
import type { Mutation } from '../../shared/idempotency/contract.ts';
import { createLogger } from '../../shared/logger.ts';
import { createMeter } from '../../shared/metrics.ts';

const mutation = { principal: 'user', key: 'key' } as Mutation;

test('core 18: a load of the Redis client that fails costs that request its fast path, and no other', async () => {
  let fails = true;
  vi.doMock('../../shared/redis/fast-path.ts', () => ({
    redisFastPath: () => {
      if (fails) throw new Error('too many open files');
      return { claim: async () => ({ kind: 'claimed' }) };
    },
  }));
  onTestFinished(() => vi.doUnmock('../../shared/redis/fast-path.ts'));
  const { openFront } = await import('../../shared/front.ts');
  const config = loadConfig({
    DATABASE_URL: 'postgres://host/db',
    REDIS_URL: 'redis://127.0.0.1:1',
    BACKSTOP_NAMESPACE: 'test',
  });
  const meter = createMeter('test', config.stage);
  const failures = vi.spyOn(meter, 'fastPathFailure');
  const front = openFront(config, createLogger('test'), meter);
  onTestFinished(() => front.close());
  const path = front.fastPath('claims');

  expect(await path.claim(mutation)).toEqual({ kind: 'unknown' });
  await path.release(mutation);
  expect(failures).toHaveBeenCalledTimes(2);
  fails = false;
  expect(await path.claim(mutation)).toEqual({ kind: 'claimed' });
});
