import { Cluster, Redis } from 'ioredis';
import { monotonicMs } from '../core/clock.ts';
import { checkRedisUrl } from '../core/server-urls.ts';
import { createCluster, type NodeOptions } from './cluster.ts';
import { type IssuedPassword, signInWith } from './credentials.ts';
import { TlsConnector } from './tls.ts';

/** One Redis or a cluster: every command here concerns one key. */
export type RedisClient = Redis | Cluster;

export interface RedisOptions {
  readonly url: string;
  readonly mode?: 'single' | 'cluster';
  /** In place of the URL's password. */
  readonly password?: IssuedPassword | undefined;
  /** For any one command. The store is waiting behind it. */
  readonly commandTimeoutMs: number;
  onError(error: Error): void;
}

/**
 * A client that fails fast and mends itself in the background. No offline queue:
 * a command that cannot be sent now is worth nothing later. No resending: an
 * unanswered SET NX would meet its own entry.
 *
 * @throws ConfigError for a URL that cannot be; no value is shown.
 */
export function createRedis(options: RedisOptions): RedisClient {
  checkRedisUrl("createRedis's url", options.url);
  const redis = options.mode === 'cluster' ? openCluster(options) : openSingle(options);
  redis.on('error', (error: Error) => {
    LAST_ERROR.set(redis, describe(error));
    options.onError(error);
  });
  redis.on('ready', () => LAST_ERROR.delete(redis));
  redis.setMaxListeners(0); // Each request that waits for a connection listens.
  return redis;
}

/** Why it is not connected: the text alone, since ioredis hangs a command's password on its error. */
const LAST_ERROR = new WeakMap<RedisClient, string>();

/** An error of several addresses has no message of its own, and one of a cluster holds a node's. */
function describe(error: Error & { code?: string; lastNodeError?: Error }): string {
  const { lastNodeError, message, code, name } = error;
  return lastNodeError ? describe(lastNodeError) : message || code || name;
}

function openSingle({ url, password, commandTimeoutMs }: RedisOptions): Redis {
  const redis = new Redis(url, {
    ...nodeOptions(),
    ...(url.startsWith('rediss:') && { Connector: TlsConnector }),
    lazyConnect: true,
    enableOfflineQueue: false,
    commandTimeout: commandTimeoutMs,
    retryStrategy: reconnectAfterMs,
    // Demoted to a replica: the endpoint leads to another by now.
    reconnectOnError: ({ message }) => message.startsWith('READONLY'),
    enableReadyCheck: true,
  });
  if (password) signInWith(redis, password);
  return redis;
}

function openCluster({ url, password, commandTimeoutMs, onError }: RedisOptions): Cluster {
  const cluster = createCluster({
    url,
    commandTimeoutMs,
    nodeOptions: nodeOptions(),
    reconnectAfterMs,
    onNode: (node) => {
      node.setMaxListeners(0);
      if (password) signInWith(node, password);
    },
  });
  cluster.on('node error', onError);
  return cluster;
}

const nodeOptions = (): NodeOptions => ({
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: RECONNECT_TIMEOUT_MS,
  socketTimeout: SOCKET_IDLE_TIMEOUT_MS,
  keepAlive: 10_000,
  // CLIENT SETINFO would need one more right in the ACL.
  disableClientInfo: true,
});

const reconnectAfterMs = (times: number): number =>
  Math.min(10 * 2 ** Math.min(times - 1, 7), RECONNECT_EVERY_MS_MAX);

/** The background may take its time: nobody waits for it. */
const RECONNECT_TIMEOUT_MS = 2000;
const RECONNECT_EVERY_MS_MAX = 1000;

/**
 * A connection that owes an answer for so long is dead, whatever TCP thinks (which
 * takes a quarter of an hour to notice that a peer vanished without a word).
 */
const SOCKET_IDLE_TIMEOUT_MS = 1000;

/**
 * Opens the first connection and waits for it, up to `budgetMs`; likewise for a later
 * one that is just being made. Between two attempts it waits for nothing: a command
 * fails at once then, as it should.
 *
 * @throws Error when the connection failed or the budget ran out.
 */
export async function firstConnection(redis: RedisClient, budgetMs: number): Promise<void> {
  if (isConnecting(redis)) await connected(redis, budgetMs);
}

const isConnecting = ({ status }: RedisClient): boolean =>
  ['wait', 'connecting', 'connect'].includes(status);

/**
 * Waits until commands can be sent, up to `budgetMs`. A cluster refuses them while it
 * connects to the node that they are for; a node that does not come within that time
 * concerns its own keys alone.
 *
 * @throws Error when the connection failed or the budget ran out.
 */
export async function connected(redis: RedisClient, budgetMs: number): Promise<void> {
  const byMonotonicMs = monotonicMs() + budgetMs;
  if (redis.status !== 'ready') await ready(redis, budgetMs);
  if (redis instanceof Cluster) {
    const nodes = redis.nodes('master').filter(isConnecting);
    await Promise.allSettled(nodes.map((node) => ready(node, byMonotonicMs - monotonicMs())));
  }
}

async function ready(redis: RedisClient, budgetMs: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const fail = (what: string) => {
    const why = LAST_ERROR.get(redis);
    reject(new Error(`Redis: the connection ${what}${why ? `: ${why}` : ''}`));
  };
  const onClose = () => fail('failed');
  // Node warns of a negative one, and takes it for 1.
  const timer = setTimeout(() => fail('took too long'), Math.max(1, budgetMs));
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
