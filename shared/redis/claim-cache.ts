/**
 * L1: one key, one command for each step.
 *
 *   claim     SET key pending PXAT deadline NX GET   nothing there → it is ours
 *   publish   SET key completed PXAT expiry          the only committer may overwrite
 *   release   delete unless it is another's entry
 *
 * Every time-to-live is absolute, so that a command that arrives late stores
 * nothing that outlives its meaning.
 */
import { nowMs } from '../core/clock.ts';
import type { FastPath, Mutation, Sight } from '../core/contract.ts';
import { type FastPathOptions, insist, openGuard } from './circuit-breaker.ts';
import { firstConnection } from './client.ts';
import { decode, encodeCompleted, encodePending } from './entries.ts';
import { entryNames } from './keys.ts';
import { unfitness } from './unfit.ts';

/** What may pass between the owner's deadline and its release. */
const PENDING_GRACE_MS = 1000;

/**
 * The value is the whole pending entry, which holds the owner's token. 1: nothing of ours stands
 * there. (pcall: it may be no string, which is another's.)
 */
const RELEASE = `
local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' and not found.err:find('WRONGTYPE', 1, true) then return found end
if found == false or found == ARGV[1] then redis.call('DEL', KEYS[1]) return 1 end
return 0`;

/** The HTTP API gives up after 30 s. */
const LONGEST_REQUEST_MS = 28_000;

export interface ClaimPathOptions extends FastPathOptions {
  /**
   * The longest time that a request may take, the function's time-out: 28 s where it is not said.
   * A pending entry that claims to need longer was made by a clock that is wrong, and does
   * not count: its owner may be dead for minutes before it ends.
   */
  readonly longestRequestMs?: number;
}

/** @throws TypeError without a namespace. */
export function redisFastPath(options: ClaimPathOptions): FastPath {
  const { redis, longestRequestMs = LONGEST_REQUEST_MS } = options;
  const nameOf = entryNames(options);
  const keyOf = ({ principal, key }: Mutation) => nameOf(principal, key);
  const attempt = openGuard(options);
  /**
   * Those whose SET was sent. Whatever they heard of it, their pending entry may stand
   * there: their last word is owed, also in a cool-down.
   */
  const sent = new WeakSet<Mutation>();
  const deleteIf = (mutation: Mutation, own: string) =>
    redis.eval(RELEASE, 1, keyOf(mutation), own);
  /**
   * A user who may claim and not release would shut each key of a request that failed until its
   * deadline. So the first claim says the release as well, before it in the same round trip.
   */
  let mayRelease = false;
  const missingRight = async (mutation: Mutation) => {
    try {
      // No entry is a token.
      if ((await deleteIf(mutation, mutation.token)) === 1) mayRelease = true;
    } catch (error) {
      return unfitness(error); // Anything else is the claim's to find out.
    }
    return undefined;
  };

  const setPending = async (mutation: Mutation, pending: string): Promise<string | null> => {
    const expiresAtMs = Math.ceil(mutation.deadlineMs + PENDING_GRACE_MS);
    try {
      const [missing, found] = await Promise.all([
        mayRelease ? undefined : missingRight(mutation),
        redis.set(keyOf(mutation), pending, 'PXAT', expiresAtMs, 'NX', 'GET'),
      ]);
      if (missing === undefined) return found;
      // Its expiry has passed: this removes what the claim has just put there.
      if (found === null) await redis.set(keyOf(mutation), pending, 'PXAT', 1);
      throw missing;
    } catch (error) {
      if (unfitness(error)) sent.delete(mutation); // Refused: nothing of it stands there.
      throw error;
    }
  };

  return {
    claim: async (mutation) => {
      const pending = encodePending(mutation);
      const result = await attempt('claim', async () => {
        await firstConnection(redis, options.connectBudgetMs);
        if (redis.status === 'ready') sent.add(mutation);
        return setPending(mutation, pending);
      });
      const sight = result ? sightOf(result.answer, pending) : UNKNOWN;
      const isPossible = sight.kind !== 'pending' || sight.deadlineMs <= nowMs() + longestRequestMs;
      return isPossible ? sight : UNKNOWN;
    },
    publish: async (mutation, response, expiresAtMs) => {
      const completed = encodeCompleted(mutation.fingerprint, response, expiresAtMs);
      const command = () => redis.set(keyOf(mutation), completed, 'PXAT', Math.floor(expiresAtMs));
      await attempt('publish', () => insist(redis, command), sent.has(mutation));
    },
    release: async (mutation) => {
      if (!sent.has(mutation)) return;
      await attempt(
        'release',
        () => insist(redis, () => deleteIf(mutation, encodePending(mutation))),
        true,
      );
    },
  };
}

const UNKNOWN: Sight = { kind: 'unknown' };

function sightOf(found: string | null, own: string): Sight {
  // One's own entry is one's own: a command that was sent twice met itself.
  if (found === null || found === own) return { kind: 'claimed' };
  return decode(found) ?? UNKNOWN;
}
