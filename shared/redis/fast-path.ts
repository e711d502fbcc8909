/**
 * L1: one key, one command for each step.
 *
 *   claim     SET key pending PXAT deadline NX GET   nothing there → it is ours
 *   publish   SET key completed PXAT expiry          the only committer may overwrite
 *   release   delete if it is still our own entry
 *
 * Every time-to-live is absolute, so that a command that arrives late stores
 * nothing that outlives its meaning.
 */
import type { FastPath, Mutation, Sight } from '../idempotency/contract.ts';
import { firstConnection } from './client.ts';
import { decode, encodeCompleted, encodePending } from './entries.ts';
import { type FastPathOptions, insist, openGuard } from './guard.ts';
import { entryNames } from './keys.ts';

/** What may pass between the owner's deadline and its release. */
const PENDING_GRACE_MS = 1000;

/** The value is the whole pending entry, which holds the owner's token. (pcall: it may be no string.) */
const RELEASE = `if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

/** @throws TypeError without a namespace. */
export function redisFastPath(options: FastPathOptions): FastPath {
  const { redis } = options;
  const nameOf = entryNames(options);
  const keyOf = ({ principal, key }: Mutation) => nameOf(principal, key);
  const attempt = openGuard(options);
  /**
   * Those whose SET was sent. Whatever they heard of it, their pending entry may stand
   * there: their last word is owed, also in a cool-down.
   */
  const sent = new WeakSet<Mutation>();

  return {
    claim: async (mutation) => {
      const pending = encodePending(mutation);
      const expiresAtMs = Math.ceil(mutation.deadlineMs + PENDING_GRACE_MS);
      const result = await attempt('claim', async () => {
        await firstConnection(redis, options.connectBudgetMs);
        if (redis.status === 'ready') sent.add(mutation);
        return redis.set(keyOf(mutation), pending, 'PXAT', expiresAtMs, 'NX', 'GET');
      });
      return result ? sightOf(result.answer, pending) : { kind: 'unknown' };
    },
    publish: async (mutation, response, expiresAtMs) => {
      const completed = encodeCompleted(mutation.fingerprint, response, expiresAtMs);
      const command = () => redis.set(keyOf(mutation), completed, 'PXAT', Math.floor(expiresAtMs));
      await attempt('publish', () => insist(redis, command), sent.has(mutation));
    },
    release: async (mutation) => {
      if (!sent.has(mutation)) return;
      const command = () => redis.eval(RELEASE, 1, keyOf(mutation), encodePending(mutation));
      await attempt('release', () => insist(redis, command), true);
    },
  };
}

function sightOf(found: string | null, own: string): Sight {
  // One's own entry is one's own: a command that was sent twice met itself.
  if (found === null || found === own) return { kind: 'claimed' };
  return decode(found) ?? { kind: 'unknown' };
}
