/**
 * What keeps a bad Redis from costing more than its budget: failures are counted and
 * never thrown, and after a few of them Redis is left alone for a while.
 */
import {
  BrokenCircuitError,
  CircuitState,
  ConsecutiveBreaker,
  circuitBreaker,
  handleWhen,
} from 'cockatiel';
import { monotonicMs } from '../core/clock.ts';
import { connected, type RedisClient } from './client.ts';
import type { Keyspace } from './keys.ts';
import { unfitness } from './unfit.ts';

export type Step = 'claim' | 'publish' | 'release';

export interface FastPathOptions extends Keyspace {
  readonly redis: RedisClient;
  /** How long the first request of a process waits for its connection. */
  readonly connectBudgetMs: number;
  /** How long L1 is left alone after it failed three times running. */
  readonly coolDownMs: number;
  /**
   * An L1 failure costs nobody anything but time; count it. An `UnfitRedisError` says what somebody
   * has to mend: L1 is off until then, and asked again once a minute.
   */
  onFailure(step: Step, error: unknown): void;
}

const FAILURES_BEFORE_COOL_DOWN = 3;

/** How long a Redis is left alone that is no use until somebody mends it. */
const UNFIT_COOL_DOWN_MS = 60_000;

/** How long the last word of a request waits for the connection to come back. */
const RECONNECT_WAIT_MS = 100;

/**
 * Undefined when it failed, which is counted and never thrown. What is owed is tried in
 * a cool-down too.
 */
export type Attempt = <T>(
  step: Step,
  command: () => Promise<T>,
  isOwed?: boolean,
) => Promise<{ readonly answer: T } | undefined>;

export function openGuard(options: FastPathOptions): Attempt {
  // Somebody's value of another type, under one key, says nothing of the others.
  const isOutage = handleWhen((error) => !String(error).includes('WRONGTYPE'));
  const breaker = circuitBreaker(isOutage, {
    halfOpenAfter: options.coolDownMs,
    breaker: new ConsecutiveBreaker(FAILURES_BEFORE_COOL_DOWN),
  });
  let unfitUntilMs = Number.NEGATIVE_INFINITY;
  return async (step, command, isOwed = false) => {
    if (!isOwed && monotonicMs() < unfitUntilMs) return undefined;
    const isPastBreaker = isOwed && breaker.state !== CircuitState.Closed;
    try {
      return { answer: await (isPastBreaker ? command() : breaker.execute(command)) };
    } catch (error) {
      if (error instanceof BrokenCircuitError) return undefined;
      const unfit = unfitness(error);
      if (unfit) unfitUntilMs = monotonicMs() + UNFIT_COOL_DOWN_MS;
      options.onFailure(step, unfit ?? error);
      return undefined;
    }
  };
}

/**
 * Says a command once more when its connection was lost and the next one comes
 * soon: an environment that was frozen wakes up to a dead one. For what may be
 * carried out twice.
 */
export async function insist<T>(redis: RedisClient, command: () => Promise<T>): Promise<T> {
  const byMs = monotonicMs() + RECONNECT_WAIT_MS;
  try {
    return await command();
  } catch (error) {
    // Still connected: Redis said no, or nothing at all.
    if (redis.status === 'ready' && !isConnectionLost(error)) throw error;
    await connected(redis, byMs - monotonicMs());
    return command();
  }
}

/** A cluster that has lost the connection to one node is still connected to the others. */
function isConnectionLost(error: unknown): boolean {
  return error instanceof Error && error.message === 'Connection is closed.';
}
