/**
 * Waits for the promise, for `ms` at the most: then rejects with what `error` makes. The promise
 * itself is not cancelled. How it ends after that is nobody's concern: its late rejection counts
 * as handled.
 */
export async function withTimeout<T>(
  promise: Promise<T>,
  ms: number,
  error: () => Error,
): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(error()), ms);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
