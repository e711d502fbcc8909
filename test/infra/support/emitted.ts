/** Everything that the code emits, by letting it. */

import { NO_CACHE, type Store } from '../../../shared/core/contract.ts';
import type { NotCommitted } from '../../../shared/core/outcome.ts';
import type { Step } from '../../../shared/redis/circuit-breaker.ts';
import { mutationHandler } from '../../../shared/service/handlers.ts';
import { createLogger } from '../../../shared/service/logger.ts';
import { type CleanupMeasured, createMeter } from '../../../shared/service/metrics.ts';
import { REQUESTS } from '../../../shared/service/settings/requests.ts';
import { captureOutput } from '../../support/output.ts';
import { httpEvent, lambdaContext, newKey } from '../../support/requests.ts';
import { type Sample, samplesOf } from './metrics.ts';

/** Every step, or this does not compile. */
const STEPS: Record<Step, true> = { claim: true, publish: true, release: true };

export const steps = Object.keys(STEPS) as Step[];

/** What `act` emits. */
export async function emittedBy(act: () => unknown): Promise<Sample[]> {
  const lines = captureOutput();
  const before = lines.length;
  await act();
  return samplesOf(lines.slice(before));
}

/** The stage of the package `own`. */
const STAGE = 'dev';

/** One run of the purge; everything measured unless `measured` says otherwise. */
export function purgeRun(measured: Partial<CleanupMeasured> = {}, stage = STAGE): void {
  createMeter('backstop-purge', stage).cleanup({
    rows: 10,
    batchDurationsSeconds: [0.02, 0.03],
    oldestExpiredAgeSeconds: 0,
    leftRows: 0,
    rowsPerSecond: 100,
    arrivalPerSecond: 10,
    secondsToDrain: 0,
    failed: [],
    ...measured,
  });
}

export function cacheFailure(step: Step, stage = STAGE): void {
  createMeter('backstop', stage).cacheFailure(step);
}

export function requestWithoutKey(): void {
  createMeter('backstop', STAGE).keyEmpty();
}

/** A request on the real fixture, on a store that answers it with this outcome. */
export async function requestThatEnds(outcome: NotCommitted<never>, stage = STAGE): Promise<void> {
  const logger = createLogger('test');
  logger.setLogLevel('SILENT');
  const store: Store<never> = { begin: async () => outcome };
  const handler = mutationHandler(
    {
      name: 'measured',
      body: undefined,
      stateUrl: '/',
      run: ({ once }) => once(async () => ({ statusCode: 200 })),
    },
    {
      settings: { requests: REQUESTS.read({}) },
      logger,
      meter: createMeter('backstop', stage),
      store,
      cache: NO_CACHE,
    },
  );
  await handler(httpEvent({ principal: 'alice', key: newKey(), body: {} }), lambdaContext());
}
