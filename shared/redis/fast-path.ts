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
import { BrokenCircuitError, ConsecutiveBreaker, circuitBreaker, handleAll } from 'cockatiel';
import type { Redis } from 'ioredis';
import type { FastPath, Mutation, Sight } from '../idempotency/contract.ts';
import { firstConnection } from './client.ts';
import { decode, encodeCompleted, encodePending } from './entries.ts';

export interface FastPathOptions {
  readonly redis: Redis;
  /** How long the first request of a process waits for its connection. */
  readonly connectBudgetMs: number;
  /** How long L1 is left alone after it failed three times running. */
  readonly coolDownMs: number;
  /** An L1 failure costs nobody anything but time; count it. */
  onFailure(step: 'claim' | 'publish' | 'release', error: unknown): void;
}

/** What may pass between the owner's deadline and its release. */
const PENDING_GRACE_MS = 1000;

const FAILURES_BEFORE_COOL_DOWN = 3;

/** The value is the whole pending entry, which holds the owner's token. */
const RELEASE = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

export function redisFastPath(options: FastPathOptions): FastPath {
  const { redis } = options;
  const breaker = circuitBreaker(handleAll, {
    halfOpenAfter: options.coolDownMs,
    breaker: new ConsecutiveBreaker(FAILURES_BEFORE_COOL_DOWN),
  });

  /** Undefined when it failed, which is counted and never thrown. */
  async function attempt<T>(step: 'claim' | 'publish' | 'release', command: () => Promise<T>) {
    try {
      return { answer: await breaker.execute(command) };
    } catch (error) {
      if (!(error instanceof BrokenCircuitError)) options.onFailure(step, error);
      return undefined;
    }
  }

  return {
    claim: async (mutation) => {
      const pending = encodePending(mutation);
      const expiresAtMs = Math.ceil(mutation.deadlineMs + PENDING_GRACE_MS);
      const result = await attempt('claim', async () => {
        await firstConnection(redis, options.connectBudgetMs);
        return redis.set(keyOf(mutation), pending, 'PXAT', expiresAtMs, 'NX', 'GET');
      });
      return result ? sightOf(result.answer, pending) : { kind: 'unknown' };
    },
    publish: async (mutation, response, expiresAtMs) => {
      const completed = encodeCompleted(mutation.fingerprint, response, expiresAtMs);
      await attempt('publish', () =>
        redis.set(keyOf(mutation), completed, 'PXAT', Math.floor(expiresAtMs)),
      );
    },
    release: async (mutation) => {
      await attempt('release', () =>
        redis.eval(RELEASE, 1, keyOf(mutation), encodePending(mutation)),
      );
    },
  };
}

function sightOf(found: string | null, own: string): Sight {
  // One's own entry is one's own: a command that was sent twice met itself.
  if (found === null || found === own) return { kind: 'claimed' };
  return decode(found) ?? { kind: 'unknown' };
}

/** Each part is percent-encoded, so that user `t1` with key `a:b` is not `t1:a` with `b`. */
function keyOf({ principal, key }: Pick<Mutation, 'principal' | 'key'>): string {
  return `idem:${encodeURIComponent(principal)}:${encodeURIComponent(key)}`;
}
