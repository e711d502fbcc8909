/**
 * Keeps a bad Redis from costing more than its budget: failures are counted and
 * never thrown, and after a few of them no command is sent for a while.
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

export interface RedisCacheOptions extends Keyspace {
  readonly redis: RedisClient;
  /** How long the first request of a process waits for its connection. */
  readonly connectBudgetMs: number;
  /** How long Redis is left alone after it failed three times running. */
  readonly coolDownMs: number;
  /**
   * A failure costs nothing but time; count it. An `UnfitRedisError` says what somebody
   * has to mend: the cache is off until then, and tried again once a minute.
   */
  onFailure(step: Step, error: unknown): void;
}

const FAILURES_BEFORE_COOL_DOWN = 3;

/** How long a Redis is left alone that is no use until somebody mends it. */
const UNFIT_COOL_DOWN_MS = 60_000;

/** How long the last command of a request waits for the connection to come back. */
const RECONNECT_WAIT_MS = 100;

/**
 * Sends a command. Undefined when it failed, which is counted and never thrown. `bypassBreaker`
 * sends it in a cool-down too: a SET of this request may have been carried out.
 */
export type Guarded = <T>(
  step: Step,
  command: () => Promise<T>,
  bypassBreaker?: boolean,
) => Promise<{ readonly answer: T } | undefined>;

export function openCircuitBreaker(options: RedisCacheOptions): Guarded {
  // Somebody's value of another type, under one key, says nothing of the others.
  const isOutage = handleWhen((error) => !String(error).includes('WRONGTYPE'));
  const breaker = circuitBreaker(isOutage, {
    halfOpenAfter: options.coolDownMs,
    breaker: new ConsecutiveBreaker(FAILURES_BEFORE_COOL_DOWN),
  });
  let unfitUntilMonotonicMs = Number.NEGATIVE_INFINITY;
  return async (step, command, bypassBreaker = false) => {
    if (!bypassBreaker && monotonicMs() < unfitUntilMonotonicMs) return undefined;
    const isPastBreaker = bypassBreaker && breaker.state !== CircuitState.Closed;
    try {
      return { answer: await (isPastBreaker ? command() : breaker.execute(command)) };
    } catch (error) {
      if (error instanceof BrokenCircuitError) return undefined;
      const unfit = unfitness(error);
      if (unfit) unfitUntilMonotonicMs = monotonicMs() + UNFIT_COOL_DOWN_MS;
      options.onFailure(step, unfit ?? error);
      return undefined;
    }
  };
}

/**
 * Sends a command again when its connection was lost and the next one comes
 * soon: the connections of an environment that was frozen are dead when it thaws. For what may be
 * carried out twice.
 */
export async function retryOnReconnect<T>(
  redis: RedisClient,
  command: () => Promise<T>,
): Promise<T> {
  const byMonotonicMs = monotonicMs() + RECONNECT_WAIT_MS;
  try {
    return await command();
  } catch (error) {
    // Still connected: Redis refused it, or did not answer.
    if (redis.status === 'ready' && !isConnectionLost(error)) throw error;
    await connected(redis, byMonotonicMs - monotonicMs());
    return command();
  }
}

/** A cluster that has lost the connection to one node is still connected to the others. */
function isConnectionLost(error: unknown): boolean {
  return error instanceof Error && error.message === 'Connection is closed.';
}
