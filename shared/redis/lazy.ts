/**
 * The client takes as long to load as all the rest of a function, and a function that only reads
 * never needs it: the first command loads it. See docs/adr/0010.
 */
import { type Cache, NO_CACHE } from '../core/contract.ts';

/** Makes it once. What failed is made anew the next time: a file that could not be read may be there then. */
export function keepSuccess<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make().catch((error: unknown) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}

/** Never rejects: a claim whose cache cannot be loaded goes without, and `onFailure` is called. */
export function lazyCache(load: () => Promise<Cache>, onFailure: (error: unknown) => void): Cache {
  const loaded = keepSuccess(load);
  const get = () =>
    loaded().catch((error: unknown) => {
      onFailure(error);
      return NO_CACHE;
    });
  return { claim: async (mutation) => (await get()).claim(mutation) };
}
