/** A Redis of a test file's own, which it may freeze, kill and bring back. */
import { Redis } from 'ioredis';
import { startRedis } from '../../infra/local/redis.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import { eventually } from './waiting.ts';

/** Of every service and cache that names no other. */
export const TEST_NAMESPACE = 'test';

/** How the names of its entries begin. */
export const ENTRIES = `${TEST_NAMESPACE}:1:idem:`;

export interface PrivateRedis {
  readonly url: string;
  /** A client of the test's own, beside the product. */
  readonly raw: Redis;
  /** What stands there under the product's keys. */
  entries(): Promise<Entry[]>;
  /** The entry of the one key that stands there. */
  entry(): Promise<Entry>;
  /** Listens from now on. Call the result for every command said so far; it ends the listening. */
  monitor(): Promise<() => Promise<string[][]>>;
  /** The process stands still: connections stay open and nothing is answered. */
  freeze(): void;
  thaw(): void;
  /** SIGKILL. It keeps nothing, so it comes back empty. */
  crash(): Promise<void>;
  /** Back on the same port, after a crash; does nothing to a running one. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export interface Entry {
  readonly key: string;
  readonly value: string;
  /** Parsed; undefined when it is not JSON. */
  readonly json: Record<string, unknown> | undefined;
  /** What is left of it; -1 would mean for ever. */
  readonly leftMs: number;
  /** The absolute expiry (PXAT), on the epoch; -1 for none. */
  readonly expiresAtMs: number;
}

export async function startPrivateRedis(): Promise<PrivateRedis> {
  const folder = await createRunFolder();
  const server = await startRedis({ runDir: folder.path });
  const raw = connectRaw(server.url);
  const signal = (name: NodeJS.Signals) => {
    if (server.pid !== undefined) process.kill(server.pid, name);
  };
  const entries = () => readEntries(raw);
  return {
    url: server.url,
    raw,
    entries,
    entry: async () => {
      const [entry, ...others] = await entries();
      if (!entry || others.length > 0)
        throw new Error(`${others.length + (entry ? 1 : 0)} entries`);
      return entry;
    },
    monitor: () => listen(raw),
    freeze: () => signal('SIGSTOP'),
    thaw: () => signal('SIGCONT'),
    crash: async () => {
      signal('SIGKILL');
      await eventually(async () => server.pid === undefined, 'Redis dead');
    },
    restart: async () => {
      await server.start();
      await eventually(() => raw.ping().catch(() => false as const), 'Redis back');
    },
    close: async () => {
      raw.disconnect();
      signal('SIGCONT');
      await server.close();
      await folder.remove();
    },
  };
}

function connectRaw(url: string): Redis {
  const raw = new Redis(url, { retryStrategy: () => 10, maxRetriesPerRequest: 1 });
  raw.on('error', () => {}); // A test that kills the server knows.
  return raw;
}

async function listen(raw: Redis): Promise<() => Promise<string[][]>> {
  const monitor = await raw.monitor();
  monitor.on('error', () => {});
  const said: string[][] = [];
  monitor.on('monitor', (_time: string, command: string[]) => said.push(command));
  return async () => {
    await raw.echo('end of listening');
    await eventually(async () => said.at(-1)?.[1] === 'end of listening', 'all told');
    monitor.disconnect();
    return said.slice(0, -1);
  };
}

async function readEntries(raw: Redis): Promise<Entry[]> {
  const keys = await raw.keys('*:idem:*');
  const read = keys.sort().map(async (key): Promise<Entry[]> => {
    const [value, leftMs, expiresAtMs] = await Promise.all([
      raw.get(key),
      raw.pttl(key),
      raw.pexpiretime(key),
    ]);
    return value === null ? [] : [{ key, value, json: parse(value), leftMs, expiresAtMs }];
  });
  return (await Promise.all(read)).flat();
}

function parse(value: string): Entry['json'] {
  try {
    return JSON.parse(value) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
