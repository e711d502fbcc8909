import { describe, expect, test, vi } from 'vitest';
import {
  nextBatchRows,
  throttleByRate,
  throttleByTime,
} from '../../../shared/postgres/purge/throttle.ts';

describe('the pause after a batch', () => {
  const step = { rows: 1000, busyMs: 40, spanSeconds: 10, leftSeconds: 100 };

  test('the pause is as long as the time allows, up to three times the batch', () => {
    // 400 ms of work are left. Half of the time is planned with.
    expect(throttleByTime(() => 50_000)(step)).toBe(120);
    expect(throttleByTime(() => 1600)(step)).toBe(40);
    expect(throttleByTime(() => 3200)(step)).toBe(120);
  });

  test('there is no pause when the time is short, or over', () => {
    expect(throttleByTime(() => 800)(step)).toBe(0);
    expect(throttleByTime(() => 10)(step)).toBe(0);
    expect(throttleByTime(() => -5)(step)).toBe(0);
  });

  test('there is no pause when nothing is left', () => {
    expect(throttleByTime(() => 50_000)({ ...step, leftSeconds: 0 })).toBe(0);
  });

  test('the pause becomes shorter when rows turn out to be denser', () => {
    const throttle = throttleByTime(() => 2000);
    const sparse = throttle(step);
    expect(throttle({ ...step, spanSeconds: 1 })).toBeLessThan(sparse);
  });

  test('the pause keeps a rate, and does not make up for a slow spell', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const throttle = throttleByRate(1000);
      expect(throttle({ ...step, rows: 100, busyMs: 0 })).toBe(100);
      vi.advanceTimersByTime(100);
      vi.advanceTimersByTime(40);
      expect(throttle({ ...step, rows: 100, busyMs: 40 })).toBe(60);
      vi.advanceTimersByTime(60_000);
      expect(throttle({ ...step, rows: 100, busyMs: 40 })).toBe(60);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('the size of a batch', () => {
  const full = { isFull: true };

  test('the size doubles when quick and is halved when slow, within bounds', () => {
    expect(nextBatchRows(5000, { ...full, busyMs: 10 }, 50_000)).toBe(10_000);
    expect(nextBatchRows(10_000, { ...full, busyMs: 30 }, 50_000)).toBe(10_000);
    expect(nextBatchRows(10_000, { ...full, busyMs: 51 }, 50_000)).toBe(5000);
    expect(nextBatchRows(40_000, { ...full, busyMs: 10 }, 50_000)).toBe(50_000);
    expect(nextBatchRows(1500, { ...full, busyMs: 500 }, 50_000)).toBe(1000);
  });

  test('the size never goes beyond what is set, be it less than the least', () => {
    expect(nextBatchRows(10, { ...full, busyMs: 1 }, 10)).toBe(10);
    expect(nextBatchRows(10, { ...full, busyMs: 500 }, 10)).toBe(10);
  });

  test('a short batch does not change the size', () => {
    expect(nextBatchRows(5000, { isFull: false, busyMs: 1 }, 50_000)).toBe(5000);
  });
});
