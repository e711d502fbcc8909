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
import type { Cache, CacheLookup, Mutation } from '../core/contract.ts';
import { openCircuitBreaker, type RedisCacheOptions, retryOnReconnect } from './circuit-breaker.ts';
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

/** The HTTP API times out after 30 s. */
const LONGEST_REQUEST_MS = 28_000;

export interface ClaimCacheOptions extends RedisCacheOptions {
  /**
   * The longest time that a request may take, the function's time-out; default 28 s.
   * A pending entry that claims to need longer was made by a clock that is wrong, and does
   * not count: its owner may be dead for minutes before it ends.
   */
  readonly longestRequestMs?: number;
}

/** @throws TypeError without a namespace. */
export function redisClaimCache(options: ClaimCacheOptions): Cache {
  const { redis, longestRequestMs = LONGEST_REQUEST_MS } = options;
  const nameOf = entryNames(options);
  const guarded = openCircuitBreaker(options);
  const deleteIf = (name: string, own: string) => redis.eval(RELEASE, 1, name, own);
  /**
   * A user who may claim and not release would shut each key of a request that failed until its
   * deadline. So the first claim sends the release as well, before it in the same round trip.
   */
  let mayRelease = false;
  const missingRight = async (name: string, { token }: Mutation) => {
    try {
      // No entry is a token.
      if ((await deleteIf(name, token)) === 1) mayRelease = true;
    } catch (error) {
      return unfitness(error); // Anything else is the claim's to find out.
    }
    return undefined;
  };
  const setPending = async (name: string, mutation: Mutation, pending: string) => {
    const expiresAtMs = Math.ceil(mutation.deadlineMs + PENDING_GRACE_MS);
    const [missing, found] = await Promise.all([
      mayRelease ? undefined : missingRight(name, mutation),
      redis.set(name, pending, 'PXAT', expiresAtMs, 'NX', 'GET'),
    ]);
    if (missing === undefined) return found;
    // Its expiry has passed: this removes what the claim has just put there.
    if (found === null) await redis.set(name, pending, 'PXAT', 1);
    throw missing;
  };

  return {
    claim: async (mutation) => {
      const name = nameOf(mutation.principal, mutation.key);
      const pending = encodePending(mutation);
      // Once the SET was sent its entry may stand there, whatever became of the answer. Then
      // publish and release are sent in a cool-down too.
      let maybeSet = false;
      const result = await guarded('claim', async () => {
        await firstConnection(redis, options.connectBudgetMs);
        maybeSet = redis.status === 'ready';
        try {
          return await setPending(name, mutation, pending);
        } catch (error) {
          if (unfitness(error)) maybeSet = false; // Refused: nothing of it stands there.
          throw error;
        }
      });
      const lookup = result ? lookupOf(result.answer, pending) : UNKNOWN;
      const isPossible =
        lookup.kind !== 'pending' || lookup.deadlineMs <= nowMs() + longestRequestMs;
      return {
        lookup: isPossible ? lookup : UNKNOWN,
        publish: async (kept, expiresAtMs) => {
          const completed = encodeCompleted(mutation.fingerprint, kept, expiresAtMs);
          const command = () => redis.set(name, completed, 'PXAT', Math.floor(expiresAtMs));
          await guarded('publish', () => retryOnReconnect(redis, command), maybeSet);
        },
        release: async () => {
          if (!maybeSet) return;
          const command = () => deleteIf(name, pending);
          await guarded('release', () => retryOnReconnect(redis, command), true);
        },
      };
    },
  };
}

const UNKNOWN: CacheLookup = { kind: 'unknown' };

function lookupOf(found: string | null, own: string): CacheLookup {
  // One's own entry is one's own: a command that was sent twice met itself.
  if (found === null || found === own) return { kind: 'claimed' };
  return decode(found) ?? UNKNOWN;
}
