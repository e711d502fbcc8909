/**
 * What the product uses of libraries beyond what their documentation or types promise, each on the
 * real thing, so that an upgrade that changes it fails here and says where. The list: docs/internals.md.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { DynamoDBClient, GetItemCommand } from '@aws-sdk/client-dynamodb';
import middy from '@middy/core';
import { Cluster, Command, Redis } from 'ioredis';
import pg from 'pg';
import { describe, expect, inject, onTestFinished, test, vi } from 'vitest';
import { connectionOf, corkWrites, destroySocket } from '../../shared/postgres/pg-insides.ts';
import { TlsConnector } from '../../shared/redis/tls.ts';
import { openSession } from '../support/database.ts';

const connectionString = inject('adminUrl');

function openPool(options: Partial<pg.PoolConfig>): pg.Pool {
  const pool = new pg.Pool({ connectionString, ...options } as pg.PoolConfig);
  onTestFinished(() => pool.end());
  return pool;
}

describe('the insides of pg stay as they are', () => {
  test('rejects what is outstanding when the socket of its connection is destroyed', async () => {
    const client = await openSession(connectionString);
    const sleeping = client.query('SELECT pg_sleep(600)');
    destroySocket(client);
    await expect(sleeping).rejects.toThrow(/^Connection terminated/);
  });

  test('sends what is written in one turn in one piece when its socket is corked', async () => {
    const client = new pg.Client({ connectionString, pipeline: true } as pg.ClientConfig);
    await client.connect();
    onTestFinished(() => client.end());
    const { stream } = connectionOf(client);
    const one = vi.spyOn(stream, '_write');
    const many = vi.spyOn(stream as Required<typeof stream>, '_writev');
    const answers = ['SELECT 1', 'SELECT 2'].map((text) => {
      corkWrites(client);
      return client.query(text);
    });
    await Promise.all(answers);
    expect([one.mock.calls.length, many.mock.calls.length]).toEqual([0, 1]);
  });

  test('tells the status of the transaction behind each answer', async () => {
    const client = await openSession(connectionString);
    const statuses: string[] = [];
    connectionOf(client).on('readyForQuery', ({ status }) => statuses.push(status));
    await client.query('BEGIN');
    await client.query('SELECT 1/0').catch(() => {});
    await client.query('ROLLBACK');
    expect(statuses).toEqual(['T', 'E', 'I']);
  });

  test('takes a time-out for one statement, and says which it was by its message alone', async () => {
    const client = await openSession(connectionString);
    const asked = { text: 'SELECT pg_sleep(600)', query_timeout: 50 };
    await expect(client.query(asked)).rejects.toThrow(/^Query read timeout$/);
    destroySocket(client);
  });

  test('takes one statement a text, without values too, in query mode extended', async () => {
    const client = await openSession(connectionString);
    const text = 'SELECT 1; SELECT 2';
    await expect(client.query({ text, queryMode: 'extended' } as pg.QueryConfig)).rejects.toThrow(
      'cannot insert multiple commands into a prepared statement',
    );
    await expect(client.query(text)).resolves.toHaveLength(2);
  });

  test('hands a new connection out when its asynchronous onConnect has ended, and refuses one that it rejects', async () => {
    const seen: string[] = [];
    const onConnect = async (client: pg.ClientBase) => {
      await client.query('SELECT 1');
      seen.push('checked');
      if (seen.includes('refuse')) throw new Error('unfit');
    };
    const pool = openPool({ max: 2, onConnect });
    const client = await pool.connect();
    seen.push('handed out');
    expect(seen).toEqual(['checked', 'handed out']);
    seen.push('refuse');
    await expect(pool.connect()).rejects.toThrow('unfit');
    client.release();
  });

  test('names a wait for a place in the pool by its message alone', async () => {
    const pool = openPool({ max: 1 });
    const client = await pool.connect();
    pool.options.connectionTimeoutMillis = 50; // Only from now on: to connect may take longer.
    await expect(pool.connect()).rejects.toThrow(/^timeout exceeded when trying to connect$/);
    client.release();
  });

  test('hangs the client on the error of an idle connection', async () => {
    const pool = openPool({ max: 1 });
    const { rows } = await pool.query('SELECT pg_backend_pid() AS pid');
    const failed = once(pool, 'error');
    const admin = await openSession(connectionString);
    await admin.query('SELECT pg_terminate_backend($1)', [rows[0].pid]);
    const [error] = await failed;
    expect(Object.keys(error)).toContain('client');
  });
});

describe.runIf(inject('redisUrl') !== '')('the insides of ioredis stay as they are', () => {
  const openRedis = (options: object = {}) => {
    const redis = new Redis(inject('redisUrl'), {
      lazyConnect: true,
      retryStrategy: null,
      ...options,
    });
    onTestFinished(() => redis.disconnect());
    redis.on('error', () => {});
    return redis;
  };

  test('sends each command through the sendCommand of the client itself', async () => {
    const redis = openRedis();
    const names: string[] = [];
    const send = redis.sendCommand.bind(redis);
    redis.sendCommand = (command, ...rest) => {
      names.push(command.name);
      return send(command, ...rest);
    };
    await redis.get('library-insides');
    expect(names).toContain('get');

    const cluster = new Cluster([{ host: '127.0.0.1', port: 9 }], {
      lazyConnect: true,
      enableOfflineQueue: false,
    });
    onTestFinished(() => cluster.disconnect());
    cluster.sendCommand = (command) => {
      names.push(`cluster ${command.name}`);
      return Promise.resolve(null);
    };
    await cluster.get('library-insides');
    expect(names).toContain('cluster get');
  });

  test('knows of a command whether it is settled, and rejects it after a time-out of its own', async () => {
    const command = new Command('get', ['a']);
    expect(command.isSettled).toBe(false);
    command.setTimeout(10);
    await expect(command.promise).rejects.toThrow('Command timed out');
    expect(command.isSettled).toBe(true);
  });

  test('reads the password of its options anew for each connection', async () => {
    const redis = openRedis();
    let reads = 0;
    const get = () => {
      reads++;
      return undefined;
    };
    Object.defineProperty(redis.options, 'password', { get, enumerable: true });
    await redis.connect();
    const first = reads;
    redis.disconnect();
    await once(redis, 'end');
    await redis.connect();
    expect(first).toBeGreaterThan(0);
    expect(reads).toBeGreaterThan(first);
  });

  test('tells the first error of a connector of ours', async () => {
    const server = createTcpServer((socket) => void socket.end('This is no TLS.\r\n'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const redis = new Redis(`rediss://127.0.0.1:${port}`, {
      lazyConnect: true,
      retryStrategy: () => null,
      Connector: TlsConnector,
    });
    onTestFinished(() => redis.disconnect());
    const failed = once(redis, 'error');
    redis.connect().catch(() => {});
    const [error] = await failed;
    expect(error.message).toMatch(/ssl|tls/i);
  });

  test('names a lost connection by its message alone', async () => {
    const redis = openRedis();
    await redis.connect();
    const waiting = redis.blpop('library-insides-list', 0);
    redis.disconnect();
    await expect(waiting).rejects.toThrow(/^Connection is closed\.$/);
  });

  test('hangs the error of a node on the error of its cluster', async () => {
    const cluster = new Cluster([{ host: '127.0.0.1', port: 9 }], {
      lazyConnect: true,
      clusterRetryStrategy: () => null,
    });
    onTestFinished(() => cluster.disconnect());
    const failed = once(cluster, 'error');
    cluster.connect().catch(() => {});
    const [error] = await failed;
    expect(error.lastNodeError).toBeInstanceOf(Error);
  });
});

describe('the insides of middy stay as they are', () => {
  test('hands one request to all hooks, sets its error before the first onError, and stops at a response', async () => {
    const seen: unknown[] = [];
    const requests = new Set<object>();
    const handler = middy({ timeoutEarlyInMillis: 0 })
      .use({
        before: (request) => {
          requests.add(request);
          let error: unknown;
          Object.defineProperty(request, 'error', {
            configurable: true,
            enumerable: true,
            get: () => error,
            set: (thrown) => {
              error = thrown;
              seen.push('error is set');
            },
          });
        },
        onError: () => void seen.push('outer onError'),
      })
      .use({
        onError: (request) => {
          requests.add(request);
          seen.push('inner onError');
          request.response = 'answered';
        },
      })
      .handler(() => {
        throw new Error('thrown');
      });
    await expect(handler({} as never, {} as never)).resolves.toBe('answered');
    expect(seen).toEqual(['error is set', 'inner onError', 'outer onError']);
    expect(requests.size).toBe(1);
  });
});

describe('the insides of the AWS SDK stay as they are', () => {
  test('runs what stands low in finalizeRequest once for each send, its own resends included', async () => {
    let asked = 0;
    const server = createServer((request, response) => {
      request.resume();
      response.statusCode = ++asked < 3 ? 500 : 200;
      response.setHeader('content-type', 'application/x-amz-json-1.0');
      response.end('{}');
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const client = new DynamoDBClient({
      endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      region: 'us-east-1',
      credentials: { accessKeyId: 'local', secretAccessKey: 'local' },
      maxAttempts: 3,
    });
    onTestFinished(() => client.destroy());
    const command = new GetItemCommand({ TableName: 'none', Key: { pk: { S: 'a' } } });
    const faults: unknown[] = [];
    command.middlewareStack.add(
      (next) => (args) =>
        next(args).catch((error) => {
          faults.push(error.$fault);
          throw error;
        }),
      { name: 'seen', step: 'finalizeRequest', priority: 'low' },
    );
    await client.send(command);
    expect([asked, faults]).toEqual([3, ['server', 'server']]);
  });
});
