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
import {
  BrokenCircuitError,
  CircuitState,
  ConsecutiveBreaker,
  circuitBreaker,
  handleWhen,
} from 'cockatiel';
import type { Redis } from 'ioredis';
import { monotonicMs } from '../clock.ts';
import type { FastPath, Mutation, Sight } from '../idempotency/contract.ts';
import { connected, firstConnection } from './client.ts';
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

/** How long the last word of a request waits for the connection to come back. */
const RECONNECT_WAIT_MS = 100;

/** The value is the whole pending entry, which holds the owner's token. (pcall: it may be no string.) */
const RELEASE = `if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

export function redisFastPath(options: FastPathOptions): FastPath {
  const { redis } = options;
  // Somebody's value of another type, under one key, says nothing of the others.
  const isOutage = handleWhen((error) => !String(error).includes('WRONGTYPE'));
  const breaker = circuitBreaker(isOutage, {
    halfOpenAfter: options.coolDownMs,
    breaker: new ConsecutiveBreaker(FAILURES_BEFORE_COOL_DOWN),
  });
  /** Those whose SET was sent. Whatever they heard of it, their pending entry may stand there. */
  const sent = new WeakSet<Mutation>();

  /**
   * Undefined when it failed, which is counted and never thrown. What is owed for a
   * SET is tried in a cool-down too, or a pending entry stays that nobody works on.
   */
  async function attempt<T>(
    step: 'claim' | 'publish' | 'release',
    command: () => Promise<T>,
    isOwed = false,
  ) {
    const isPastBreaker = isOwed && breaker.state !== CircuitState.Closed;
    try {
      return { answer: await (isPastBreaker ? command() : breaker.execute(command)) };
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

/**
 * Says a command once more when its connection was lost and the next one comes
 * soon: an environment that was frozen wakes up to a dead one. For what may be
 * carried out twice.
 */
async function insist<T>(redis: Redis, command: () => Promise<T>): Promise<T> {
  const byMs = monotonicMs() + RECONNECT_WAIT_MS;
  try {
    return await command();
  } catch (error) {
    // Still connected: Redis said no, or nothing at all.
    if (redis.status === 'ready') throw error;
    await connected(redis, byMs - monotonicMs());
    return command();
  }
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
