import { describe, expect, test, vi } from 'vitest';
import {
  firstBatchRows,
  nextBatchRows,
  paceByRate,
  paceByTime,
} from '../../../shared/postgres/purge/pace.ts';
import { readShare } from '../../../shared/postgres/purge/share.ts';
import { orderFor } from '../../../shared/postgres/purge/sweep.ts';

describe('the pause after a batch', () => {
  const step = { rows: 1000, busyMs: 40, spanSeconds: 10, leftSeconds: 100 };

  test('the pause is as long as the time allows, up to three times the batch', () => {
    // 400 ms of work are left. Half of the time is planned with.
    expect(paceByTime(() => 50_000)(step)).toBe(120);
    expect(paceByTime(() => 1600)(step)).toBe(40);
    expect(paceByTime(() => 3200)(step)).toBe(120);
  });

  test('there is no pause when the time is short, or over', () => {
    expect(paceByTime(() => 800)(step)).toBe(0);
    expect(paceByTime(() => 10)(step)).toBe(0);
    expect(paceByTime(() => -5)(step)).toBe(0);
  });

  test('there is no pause when nothing is left', () => {
    expect(paceByTime(() => 50_000)({ ...step, leftSeconds: 0 })).toBe(0);
  });

  test('the pause becomes shorter when rows turn out to be denser', () => {
    const pace = paceByTime(() => 2000);
    const sparse = pace(step);
    expect(pace({ ...step, spanSeconds: 1 })).toBeLessThan(sparse);
  });

  test('the pause keeps a rate, and does not make up for a slow spell', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const pace = paceByRate(1000);
      expect(pace({ ...step, rows: 100, busyMs: 0 })).toBe(100);
      vi.advanceTimersByTime(100);
      vi.advanceTimersByTime(40);
      expect(pace({ ...step, rows: 100, busyMs: 40 })).toBe(60);
      vi.advanceTimersByTime(60_000);
      expect(pace({ ...step, rows: 100, busyMs: 40 })).toBe(60);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('the size of a batch', () => {
  const full = { isFull: true };

  test('the size begins small, doubles when quick and is halved when slow, within bounds', () => {
    expect(firstBatchRows(50_000)).toBe(5000);
    expect(nextBatchRows(5000, { ...full, busyMs: 10 }, 50_000)).toBe(10_000);
    expect(nextBatchRows(10_000, { ...full, busyMs: 30 }, 50_000)).toBe(10_000);
    expect(nextBatchRows(10_000, { ...full, busyMs: 51 }, 50_000)).toBe(5000);
    expect(nextBatchRows(40_000, { ...full, busyMs: 10 }, 50_000)).toBe(50_000);
    expect(nextBatchRows(1500, { ...full, busyMs: 500 }, 50_000)).toBe(1000);
  });

  test('the size never goes beyond what is set, be it less than the least', () => {
    expect(firstBatchRows(10)).toBe(10);
    expect(nextBatchRows(10, { ...full, busyMs: 1 }, 10)).toBe(10);
    expect(nextBatchRows(10, { ...full, busyMs: 500 }, 10)).toBe(10);
  });

  test('a short batch does not change the size', () => {
    expect(nextBatchRows(5000, { isFull: false, busyMs: 1 }, 50_000)).toBe(5000);
  });
});

describe('the order of slices', () => {
  test('the order is one’s own slices, then each neighbour’s from its end', () => {
    const slices = [0, 1, 2, 3, 4, 5];
    expect(orderFor(slices, 0, 3)).toEqual([0, 1, 3, 2, 5, 4]);
    expect(orderFor(slices, 1, 3)).toEqual([2, 3, 5, 4, 1, 0]);
    expect(orderFor(slices, 2, 3)).toEqual([4, 5, 1, 0, 3, 2]);
    expect(orderFor(slices, 0, 1)).toEqual(slices);
  });

  test('the order leaves out no slice, however few there are', () => {
    for (const count of [0, 1, 2, 3, 7]) {
      const slices = Array.from({ length: count }, (_, index) => index);
      for (const loop of [0, 1, 2, 3]) {
        expect(orderFor(slices, loop, 4).toSorted()).toEqual(slices);
      }
      const own = [0, 1, 2, 3].map((loop) => orderFor(slices, loop, 4)[0]);
      if (count >= 4) expect(new Set(own).size).toBe(4);
    }
  });
});

describe('the share that an event asks for (C109)', () => {
  test.for([
    [undefined, 0, 1],
    [null, 0, 1],
    [{}, 0, 1],
    ['text', 0, 1],
    [{ source: 'aws.scheduler', detail: {} }, 0, 1],
    [{ worker: 2, workers: 4 }, 2, 4],
    [{ source: 'aws.scheduler', detail: { worker: 1, workers: 2 } }, 1, 2],
    [{ worker: 0 }, 0, 1],
    [{ workers: 3 }, 0, 3],
  ] as const)('the event %j means worker %d of %d', ([event, worker, workers]) => {
    expect(readShare(event)).toEqual({ worker, workers });
  });

  test.for([
    { worker: 4, workers: 4 },
    { worker: 1 },
    { worker: -1, workers: 2 },
    { worker: 0, workers: 0 },
    { worker: 0, workers: 1000 },
    { worker: '0', workers: 2 },
    { worker: 0.5, workers: 2 },
    { detail: { worker: 2, workers: 2 } },
  ])('the event %j is refused', (event) => {
    expect(() => readShare(event)).toThrow(/worker counts from 0 and must be below workers/);
  });
});
