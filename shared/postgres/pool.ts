import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { parseIntoClientConfig } from 'pg-connection-string';
import { nowMs } from '../core/clock.ts';
import { checkPostgresUrl } from '../core/server-urls.ts';
import { withTimeout } from '../core/timeout.ts';
import { isDefiniteFailure } from './classify-error.ts';
import { type CheckPart, type ConnectionCheck, createConnectionCheck } from './connection-check.ts';
import { destroySocket } from './pg-insides.ts';
import { SilenceError } from './silence.ts';

export interface PoolOptions {
  readonly connectionString: string;
  /** Asked for each connection, in place of the URL's. */
  readonly password?: (() => Promise<string>) | undefined;
  /** 1 per execution environment on Lambda, which handles one request at a time. */
  readonly max: number;
  /** Send statements without waiting for the answers to those before. */
  readonly pipeline: boolean;
  readonly connectTimeoutMs: number;
  /** Idle clients may fail at any time; it is news for the log and nothing else. */
  onIdleError(error: Error): void;
}

/** A pool that also knows how the server's clock stands to ours. */
export interface Database {
  readonly pool: pg.Pool;
  readonly pipeline: boolean;
  /**
   * Asks each new connection for something more, in the same round trip. A connection that is
   * open already is asked before it is handed out again.
   */
  addConnectionCheck(part: CheckPart): void;
  /** What the server last answered to the part of this name. */
  checkAnswer(name: string): unknown;
  /** See `Store.warm`. */
  warm(): Promise<void> | undefined;
  /** A connection beside the pool, for what must not wait for a place in it; the caller ends it. */
  connectAside(): Promise<pg.Client>;
  /** A time of our clock on the server's clock, to within a round trip. */
  toServerMs(ourMs: number): number;
}

/**
 * Opens nothing yet; throws a ConfigError for a URL that cannot be. No time-out is a start-up parameter or a session's SET: RDS
 * Proxy refuses the first and pins on the second. They stand on the role.
 */
export function createDatabase(options: PoolOptions): Database {
  checkPostgresUrl("createDatabase's connectionString", options.connectionString);
  const check = createConnectionCheck();
  const config: pg.ClientConfig = {
    ...connectTo(options),
    connectionTimeoutMillis: options.connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_AFTER_MS,
  };
  const pool = new pg.Pool({
    ...config,
    max: options.max,
    pipeline: options.pipeline,
    allowExitOnIdle: true,
    onConnect: (client: pg.ClientBase) => checkOrDestroy(check, client),
  } as pg.PoolConfig);
  CHECKS.set(pool, check);
  explainWaits(pool, options);
  pool.on('release', (_error, client) => restedAtMs.set(client, nowMs()));
  pool.on('error', (error) => {
    // The pool hangs the whole client on it, the key that cancels its statements included.
    Reflect.deleteProperty(error, 'client');
    options.onIdleError(error);
  });
  // A client in use reports its loss through its queries as well; without a
  // listener the event would end the process.
  pool.on('connect', (client) => client.on('error', () => {}));
  return {
    pool,
    pipeline: options.pipeline,
    addConnectionCheck: check.add,
    checkAnswer: check.answerTo,
    warm: () => (pool.totalCount === 0 ? connectFirst(pool) : undefined),
    toServerMs: (ourMs) => ourMs + check.offsetMs(),
    connectAside: async () => {
      const client = new pg.Client(config);
      client.on('error', () => {}); // Heard through its queries.
      await client.connect();
      return client;
    },
  };
}

const WAITED = 'timeout exceeded when trying to connect';

/** pg's own message names neither the reason nor the remedy. */
function explainWaits(pool: pg.Pool, { max, connectTimeoutMs }: PoolOptions): void {
  const explain = (error: Error | undefined) =>
    error?.message === WAITED
      ? new Error(
          `${WAITED}: for ${connectTimeoutMs} ms each of the pool's ${max} was in use. The work of a mutation has one of them as its tx, and with a pool of 1 there is no other: in the work, use tx.`,
        )
      : error;
  const connect = pool.connect.bind(pool);
  type Callback = Parameters<typeof connect>[0];
  pool.connect = ((callback?: Callback) =>
    callback
      ? connect((error, client, done) => callback(explain(error), client, done))
      : connect().catch((error) => {
          throw explain(error);
        })) as typeof pool.connect;
}

/** TCP keepalive probes an idle peer after this, instead of after two hours. */
const KEEP_ALIVE_AFTER_MS = 10_000;

const restedAtMs = new WeakMap<pg.ClientBase, number>();
const RESTED_MS = 250;

/** Has this client lain idle, perhaps through a freeze in which its connection died? */
export function hasRested(client: pg.ClientBase): boolean {
  const restedSinceAtMs = restedAtMs.get(client);
  return restedSinceAtMs !== undefined && nowMs() - restedSinceAtMs > RESTED_MS;
}

/** By pool, for whoever is handed the pool alone. */
const CHECKS = new WeakMap<pg.Pool, ConnectionCheck>();

/** A pool ends a refused connection in good form, and waits for that: a dead one would never end. */
async function checkOrDestroy(check: ConnectionCheck, client: pg.ClientBase): Promise<void> {
  try {
    await check.run(client);
  } catch (error) {
    destroySocket(client);
    throw error;
  }
}

const WARM_MS_MAX = 250;

/** Up to WARM_MS_MAX; a failure is for whoever needs the connection to meet. */
async function connectFirst(pool: pg.Pool): Promise<void> {
  const connecting = pool.connect().then(
    (client) => client.release(),
    () => {},
  );
  await Promise.race([connecting, sleep(WARM_MS_MAX, undefined, { ref: false })]);
}

/** A URL's password, absent or not, would win over the function. */
function connectTo({ connectionString, password }: PoolOptions): pg.ClientConfig {
  if (!password) return { connectionString };
  return { ...parseIntoClientConfig(connectionString), password };
}

/**
 * A client of the pool, if one can be had by `untilAtMs` (our clock). A new connection that says
 * nothing is given up after a second, and another one tried, within the pool's own time-out.
 *
 * @throws Error "timeout exceeded when trying to connect", as the pool's own.
 * @throws ConfigError when the server cannot keep the promise.
 */
export async function acquire(pool: pg.Pool, untilAtMs: number): Promise<pg.PoolClient> {
  const retryUntilAtMs = nowMs() + (pool.options.connectionTimeoutMillis ?? 0);
  for (;;) {
    try {
      return await acquireOnce(pool, untilAtMs);
    } catch (error) {
      if (!(error instanceof SilenceError) || nowMs() >= Math.min(untilAtMs, retryUntilAtMs))
        throw error;
    }
  }
}

async function acquireOnce(pool: pg.Pool, untilAtMs: number): Promise<pg.PoolClient> {
  const connecting = connectChecked(pool);
  // Node warns of a negative time.
  return withTimeout(connecting, Math.max(1, untilAtMs - nowMs()), () => {
    connecting.then(
      (client) => client.release(),
      () => {},
    ); // Comes too late to be used.
    return new Error(WAITED);
  });
}

async function connectChecked(pool: pg.Pool): Promise<pg.PoolClient> {
  const client = await pool.connect();
  const check = CHECKS.get(pool);
  if (!check || check.isCurrent(client)) return client;
  try {
    await check.run(client);
    return client;
  } catch (error) {
    client.release(true);
    throw error;
  }
}

/** What sends statements that are each a transaction of their own: a pool or a client. */
export interface Queryable {
  query<Row extends pg.QueryResultRow>(
    text: string,
    values?: unknown[],
  ): Promise<pg.QueryResult<Row>>;
}

/** A little above the statement_timeout of the purge's role, which is to strike first. */
const STATEMENT_MS_MAX = 65_000;

/**
 * As the pool's own `query`, which gives up its connection for any error. Here one on
 * which merely a statement failed goes on: on another one, the next statement would
 * overtake the rollback, and find its rows still locked.
 *
 * @param leftMs how much longer anybody waits for answers, asked before each statement. One
 * that has none by then costs its connection.
 * @throws Error that says so, when that is over.
 */
export function statementsOn(
  pool: pg.Pool,
  leftMs: () => number = () => STATEMENT_MS_MAX,
): Queryable {
  return {
    query: async (text, values = []) => {
      const givenMs = Math.min(leftMs(), STATEMENT_MS_MAX);
      if (givenMs <= 0) throw new Error('The time for statements is over: nothing was sent.');
      const untilAtMs = nowMs() + givenMs;
      const client = await acquire(pool, untilAtMs);
      let isWhole = true;
      try {
        const query_timeout = Math.max(1, untilAtMs - nowMs());
        return await client.query<never>({ text, values, query_timeout } as pg.QueryConfig);
      } catch (error) {
        isWhole = isDefiniteFailure(error);
        throw error;
      } finally {
        client.release(!isWhole);
      }
    },
  };
}
