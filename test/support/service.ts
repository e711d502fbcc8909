import { onTestFinished } from 'vitest';
import { createService, type Service } from '../../shared/service/index.ts';
import type { TestDatabase } from './database.ts';
import { TEST_NAMESPACE } from './redis.ts';

/** A service as one execution environment has it, closed when the test ends. */
export function testService(
  db: Pick<TestDatabase, 'apiUrl'>,
  environment: Record<string, string> = {},
): Service {
  const service = createService({
    DATABASE_URL: db.apiUrl,
    BACKSTOP_NAMESPACE: TEST_NAMESPACE,
    BACKSTOP_POOL_MAX: '4',
    ...environment,
  });
  onTestFinished(() => service.close());
  return service;
}
