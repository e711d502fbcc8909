/**
 * The contract, as a function of the store: every store passes it with Redis,
 * without, and with Redis dying in the middle of each first request.
 */
import { describe } from 'vitest';
import type { CacheMode } from '../../shared/index.ts';
import { duplicateTests } from './duplicates.ts';
import { failureTests } from './failures.ts';
import { useStore } from './fixture.ts';
import { handlerTests } from './handlers.ts';
import type { RedisMode, StoreHarness } from './harness.ts';
import { replayTests } from './replays.ts';

/** @param cacheMode With `parallel` every word of the contract stays as it is. */
export function conformanceSuite<Handle>(
  harness: StoreHarness<Handle>,
  redis: RedisMode,
  cacheMode: CacheMode = 'first',
): void {
  describe(`${harness.name}, Redis ${redis}, cache ${cacheMode}`, () => {
    const fixture = useStore(harness, redis, cacheMode);
    replayTests(fixture);
    duplicateTests(fixture);
    failureTests(fixture);
    handlerTests(fixture);
  });
}
