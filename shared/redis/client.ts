import { Redis } from 'ioredis';

export interface RedisOptions {
  readonly url: string;
  /** For any one command. The store is waiting behind it. */
  readonly commandTimeoutMs: number;
  onError(error: Error): void;
}

/**
 * A client that fails fast and mends itself in the background. No offline queue:
 * a command that cannot be sent now is worth nothing later. No resending: an
 * unanswered SET NX would meet its own entry.
 */
export function createRedis(options: RedisOptions): Redis {
  const redis = new Redis(options.url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    commandTimeout: options.commandTimeoutMs,
    connectTimeout: RECONNECT_TIMEOUT_MS,
    retryStrategy: (times) => Math.min(10 * 2 ** Math.min(times - 1, 7), RECONNECT_EVERY_MS_MAX),
    socketTimeout: SILENCE_MS_MAX,
    // Demoted to a replica: the endpoint leads to another by now.
    reconnectOnError: ({ message }) => message.startsWith('READONLY'),
    enableReadyCheck: true,
    keepAlive: 10_000,
  });
  redis.on('error', options.onError);
  redis.setMaxListeners(0); // Each request that waits for a connection listens.
  return redis;
}

/** The background may take its time: nobody waits for it. */
const RECONNECT_TIMEOUT_MS = 2000;
const RECONNECT_EVERY_MS_MAX = 1000;

/**
 * A connection that owes an answer for so long is dead, whatever TCP thinks (which
 * takes a quarter of an hour to notice that a peer vanished without a word).
 */
const SILENCE_MS_MAX = 1000;

/**
 * Opens the first connection and waits for it, up to `budgetMs`; likewise for a later
 * one that is just being made. Between two attempts it waits for nothing: a command
 * fails at once then, as it should.
 *
 * @throws Error when the connection failed or the budget ran out.
 */
export async function firstConnection(redis: Redis, budgetMs: number): Promise<void> {
  if (['wait', 'connecting', 'connect'].includes(redis.status)) await connected(redis, budgetMs);
}

/**
 * Waits until commands can be sent, up to `budgetMs`.
 *
 * @throws Error when the connection failed or the budget ran out.
 */
export async function connected(redis: Redis, budgetMs: number): Promise<void> {
  if (redis.status === 'ready') return;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onClose = () => reject(new Error('Redis: the connection failed'));
  const timer = setTimeout(
    () => reject(new Error('Redis: the connection took too long')),
    budgetMs,
  );
  redis.once('ready', resolve);
  redis.once('close', onClose);
  if (redis.status === 'wait') redis.connect().catch(() => {}); // Heard through `close`.
  try {
    await promise;
  } finally {
    clearTimeout(timer);
    redis.off('ready', resolve);
    redis.off('close', onClose);
  }
}
