import { nowMs } from './clock.ts';
import {
  type Cache,
  type CacheClaim,
  type CacheLookup,
  COMMIT_LOOKUP_GRACE_MS,
  type Mutation,
  NO_CLAIM,
} from './contract.ts';
import { withTimeout } from './timeout.ts';

/**
 * The claim of a cache of anybody's, held to the contract: nothing rejects or outlasts the request (a
 * claim that does is `unknown`), and what it answers can be read. A rejection inside of
 * `once` would leave a transaction open, or make a failure of what was committed.
 */
export async function claimOf(
  cache: Cache,
  mutation: Mutation,
  onFailure: (error: unknown) => void = () => {},
): Promise<CacheClaim> {
  const guarded = async <T>(
    untilAtMs: number,
    method: () => Promise<T>,
    otherwise: T,
  ): Promise<T> => {
    try {
      return await withTimeout(
        method(),
        Math.max(1, untilAtMs - nowMs()),
        () => new Error('the cache did not answer within the time of the request'),
      );
    } catch (error) {
      onFailure(error);
      return otherwise;
    }
  };
  const claiming = readable(cache, mutation);
  const lookup = await guarded(
    mutation.deadlineMs,
    async () => (await claiming).lookup,
    NO_CLAIM.lookup,
  );
  // A claim that is late may have put an entry there, so its handle is waited for; of one that was
  // rejected no entry is known.
  const claimed = claiming.catch(() => NO_CLAIM);
  const untilAtMs = lastCommandUntilAtMs(mutation);
  const lastCommand = (send: (claim: CacheClaim) => Promise<void>) =>
    guarded(untilAtMs, async () => send(await claimed), undefined);
  return {
    lookup,
    publish: (kept, expiresAtMs) => lastCommand((claim) => claim.publish(kept, expiresAtMs)),
    release: () => lastCommand((claim) => claim.release()),
  };
}

/** As long as a lost COMMIT is looked up, and a little: the answer is still in time. */
function lastCommandUntilAtMs({ deadlineMs }: Mutation): number {
  return deadlineMs + COMMIT_LOOKUP_GRACE_MS + 200;
}

async function readable(cache: Cache, mutation: Mutation): Promise<CacheClaim> {
  const claim = await cache.claim(mutation);
  const isHandle = typeof claim?.publish === 'function' && typeof claim.release === 'function';
  if (!isHandle || !isLookup(claim.lookup)) {
    throw new TypeError('cache.claim resolved with no { lookup, publish, release } of a claim');
  }
  return claim;
}

function isLookup(lookup: CacheLookup | undefined): boolean {
  switch (lookup?.kind) {
    case 'claimed':
    case 'unknown':
      return true;
    case 'pending':
      return typeof lookup.fingerprint === 'string' && Number.isFinite(lookup.deadlineMs);
    case 'completed':
      return typeof lookup.fingerprint === 'string' && Number.isFinite(lookup.expiresAtMs);
    default:
      return false;
  }
}
