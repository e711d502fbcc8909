/** Goal: no wait without an end. Method: promises that settle before the time, after it, or never. */
import { expect, test } from 'vitest';
import { withTimeout } from '../../shared/core/timeout.ts';

const late = () => new Error('late');
const never = new Promise<never>(() => {});

test('withTimeout resolves and rejects as the promise does in time', async () => {
  expect(await withTimeout(Promise.resolve(7), 60_000, late)).toBe(7);
  await expect(withTimeout(Promise.reject(new Error('own')), 60_000, late)).rejects.toThrow('own');
});

test('withTimeout rejects with the given error when the time is over', async () => {
  await expect(withTimeout(never, 5, late)).rejects.toThrow('late');
});

test('withTimeout leaves no timer behind, which would keep the process alive', async () => {
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = timers();
  await withTimeout(Promise.resolve(), 60_000, late);
  expect(timers()).toBe(before);
});

test('withTimeout handles a rejection that comes after its time', async () => {
  const { promise, reject } = Promise.withResolvers<void>();
  await expect(withTimeout(promise, 5, late)).rejects.toThrow('late');
  reject(new Error('too late')); // Unhandled, it would end the process.
  await new Promise((resolve) => setImmediate(resolve));
});
