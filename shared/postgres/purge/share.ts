import type { Share } from './sweep.ts';

/**
 * Which worker of how many an event asks for: on it or, in an EventBridge envelope, on
 * its `detail`. Whatever says nothing of it is worker 0 of 1.
 *
 * @throws Error when they cannot be: a schedule that is set up wrong should be seen.
 */
export function readShare(event: unknown): Pick<Share, 'worker' | 'workers'> {
  const given = [event, memberOf(event, 'detail')].find(
    (part) => memberOf(part, 'worker') !== undefined || memberOf(part, 'workers') !== undefined,
  );
  const worker = memberOf(given, 'worker') ?? 0;
  const workers = memberOf(given, 'workers') ?? 1;
  if (!isCount(worker) || !isCount(workers) || worker >= workers) {
    const seen = JSON.stringify({ worker, workers });
    throw new Error(
      `purge: the schedule's input is ${seen}: worker counts from 0 and must be below workers, as in {"worker":0,"workers":1}`,
    );
  }
  return { worker, workers };
}

/** More slices than this would be thinner than a second's worth of a minute. */
const WORKERS_MAX = 64;

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= WORKERS_MAX;
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null
    ? (value as Record<string, unknown>)[name]
    : undefined;
}
