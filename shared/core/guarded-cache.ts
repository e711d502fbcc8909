import { isKept } from '../http/stored-format.ts';
import { NO_REQUEST, type Reporter, tell } from '../lambda/reports.ts';
import { nowMs } from './clock.ts';
import { type FastPath, type Mutation, RESOLVE_MS, type Sight } from './contract.ts';

const UNKNOWN: Sight = { kind: 'unknown' };

/**
 * A fast path of anybody's, held to the contract: no method rejects or outlasts the request (a
 * `claim` that does is `unknown`), and what it says it knows can be read. A rejection inside of
 * `once` would leave a transaction open, or make a failure of what was committed.
 */
export function guardedFastPath(fastPath: FastPath, report: Reporter): FastPath {
  const guarded = async <T>(byMs: number, method: () => Promise<T>, otherwise: T): Promise<T> => {
    const { promise: late, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(
      () => reject(new Error('the fast path did not answer within the time of the request')),
      Math.max(1, byMs - nowMs()),
    );
    try {
      return await Promise.race([method(), late]);
    } catch (error) {
      tell(report, { outcome: 'fast_path_failed', layer: 'L1', ...NO_REQUEST, error });
      return otherwise;
    } finally {
      clearTimeout(timer);
    }
  };
  return {
    claim: (mutation: Mutation) =>
      guarded(
        mutation.deadlineMs,
        async () => {
          const sight = await fastPath.claim(mutation);
          if (!isSight(sight)) throw new TypeError('fastPath.claim resolved with no Sight');
          return sight;
        },
        UNKNOWN,
      ),
    publish: (mutation, ...published) =>
      guarded(lastWordMs(mutation), () => fastPath.publish(mutation, ...published), undefined),
    release: (mutation) =>
      guarded(lastWordMs(mutation), () => fastPath.release(mutation), undefined),
  };
}

/** As long as a lost COMMIT is asked for, and a little: the answer is still in time. */
function lastWordMs({ deadlineMs }: Mutation): number {
  return deadlineMs + RESOLVE_MS + 200;
}

function isSight(sight: Sight | undefined): boolean {
  switch (sight?.kind) {
    case 'claimed':
    case 'unknown':
      return true;
    case 'pending':
      return typeof sight.fingerprint === 'string' && Number.isFinite(sight.deadlineMs);
    case 'completed':
      return (
        typeof sight.fingerprint === 'string' &&
        Number.isFinite(sight.expiresAtMs) &&
        isKept(sight.response)
      );
    default:
      return false;
  }
}
