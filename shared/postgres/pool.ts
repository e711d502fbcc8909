import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { parseIntoClientConfig } from 'pg-connection-string';
import { nowMs } from '../clock.ts';
import { isDefiniteFailure } from './sqlstate.ts';

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
  /** See `Store.warm`. */
  warm(): Promise<void> | undefined;
  /** A connection beside the pool, for what must not wait for a place in it; the caller ends it. */
  connectAside(): Promise<pg.Client>;
  /** A time of our clock on the server's clock, to within a round trip. */
  toServerMs(ourMs: number): number;
}

/**
 * Opens nothing yet. No time-out is a start-up parameter or a session's SET: RDS
 * Proxy refuses the first and pins on the second. They stand on the role.
 */
export function createDatabase(options: PoolOptions): Database {
  let offsetMs = 0;
  const config: pg.ClientConfig = {
    ...connectTo(options),
    connectionTimeoutMillis: options.connectTimeoutMs,
    keepAlive: true,
  };
  const pool = new pg.Pool({
    ...config,
    max: options.max,
    pipeline: options.pipeline,
    allowExitOnIdle: true,
    onConnect: async (client: pg.ClientBase) => {
      offsetMs = await greet(client);
    },
  } as pg.PoolConfig);
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
    warm: () => (pool.totalCount === 0 ? connectFirst(pool) : undefined),
    toServerMs: (ourMs) => ourMs + offsetMs,
    connectAside: async () => {
      const client = new pg.Client(config);
      client.on('error', () => {}); // Heard through its queries.
      await client.connect();
      return client;
    },
  };
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
 * A client of the pool, if one can be had by `byMs` (our clock).
 *
 * @throws Error "timeout exceeded when trying to connect", as the pool's own.
 */
export async function acquire(pool: pg.Pool, byMs: number): Promise<pg.PoolClient> {
  const connecting = pool.connect();
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    connecting.then(
      (client) => client.release(),
      () => {},
    ); // Comes too late to be used.
    reject(new Error('timeout exceeded when trying to connect'));
  }, byMs - nowMs());
  try {
    return await Promise.race([connecting, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** What sends statements that are each a transaction of their own: a pool or a client. */
export interface Queryable {
  query<Row extends pg.QueryResultRow>(
    text: string,
    values?: unknown[],
  ): Promise<pg.QueryResult<Row>>;
}

/**
 * As the pool's own `query`, which gives up its connection for any error. Here one on
 * which merely a statement failed goes on: on another one, the next statement would
 * overtake the rollback, and find its rows still locked.
 */
export function statementsOn(pool: pg.Pool): Queryable {
  return {
    query: async (text, values) => {
      const client = await pool.connect();
      let isWhole = true;
      try {
        return await client.query<never>(text, values);
      } catch (error) {
        isWhole = isDefiniteFailure(error);
        throw error;
      } finally {
        client.release(!isWhole);
      }
    },
  };
}

/**
 * One round trip per new connection, for what must not be assumed.
 *
 * @returns how far the server's clock is ahead of ours, in milliseconds.
 */
async function greet(client: pg.ClientBase): Promise<number> {
  const sentMs = nowMs();
  const { rows } = await client.query<Greeting>(
    `SELECT extract(epoch FROM clock_timestamp()) * 1000 AS "serverMs", current_user AS "role",
            current_setting('statement_timeout') AS "statement_timeout",
            current_setting('idle_in_transaction_session_timeout') AS "idle_in_transaction_session_timeout"`,
  );
  const greeting = rows[0] as Greeting;
  refuseUnlimited(greeting);
  return Number(greeting.serverMs) - (sentMs + nowMs()) / 2;
}

interface Greeting {
  readonly serverMs: string;
  readonly role: string;
  readonly statement_timeout: string;
  readonly idle_in_transaction_session_timeout: string;
}

/** Without these two a frozen owner keeps its claim for ever, and every retry hears ABORTED. */
function refuseUnlimited(greeting: Greeting): void {
  for (const name of ['statement_timeout', 'idle_in_transaction_session_timeout'] as const) {
    if (greeting[name] === '0') {
      throw new Error(
        `Configuration: ${name} is 0 (no limit) for the database role "${greeting.role}", so a frozen request would hold its claim for ever. Set it to the longest request: ALTER ROLE "${greeting.role}" SET ${name} = '28s'.`,
      );
    }
  }
}
