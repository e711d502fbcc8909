import type { FastPath, Mutation, Sight } from './contract.ts';
import { NO_REQUEST, type Reporter, tell } from './reports.ts';
import { isKept } from './stored-format.ts';

const UNKNOWN: Sight = { kind: 'unknown' };

/**
 * A fast path of anybody's, held to the contract: no method rejects (a `claim` that does is
 * `unknown`), and what it says it knows can be read. A rejection inside of `once` would leave
 * a transaction open, or make a failure of what was committed.
 */
export function guardedFastPath(fastPath: FastPath, report: Reporter): FastPath {
  const guarded = async <T>(method: () => Promise<T>, otherwise: T): Promise<T> => {
    try {
      return await method();
    } catch (error) {
      tell(report, { outcome: 'fast_path_failed', layer: 'L1', ...NO_REQUEST, error });
      return otherwise;
    }
  };
  return {
    claim: (mutation: Mutation) =>
      guarded(async () => {
        const sight = await fastPath.claim(mutation);
        if (!isSight(sight)) throw new TypeError('fastPath.claim resolved with no Sight');
        return sight;
      }, UNKNOWN),
    publish: (...published) => guarded(() => fastPath.publish(...published), undefined),
    release: (mutation) => guarded(() => fastPath.release(mutation), undefined),
  };
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
