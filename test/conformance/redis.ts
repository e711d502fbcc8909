/** Redis in front of a harness's store: there, absent, or one that dies when it is told to. */
import { inject } from 'vitest';
import { startRedis } from '../../infra/local/redis.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import { type Cache, NO_CACHE } from '../../shared/index.ts';
import { createRedis, type RedisClient } from '../../shared/redis/index.ts';
import { startRedisCluster } from '../support/redis-cluster.ts';
import type { RedisMode } from './harness.ts';

export interface HarnessRedis {
  readonly cache: Cache;
  killRedis(): Promise<void>;
  mend(): Promise<void>;
  close(): Promise<void>;
}

const nothing = async () => {};

export async function openHarnessRedis(
  mode: RedisMode,
  make: (redis: RedisClient) => Cache,
  where: 'single' | 'cluster' = 'single',
): Promise<HarnessRedis> {
  if (mode === 'off') return { cache: NO_CACHE, killRedis: nothing, mend: nothing, close: nothing };
  if (where === 'cluster') return openCluster(make);
  if (mode === 'on') {
    const redis = connect(inject('redisUrl'));
    return {
      cache: make(redis),
      killRedis: nothing,
      mend: nothing,
      close: async () => redis.disconnect(),
    };
  }
  const folder = await createRunFolder();
  const server = await startRedis({ runDir: folder.path });
  const redis = connect(server.url);
  return {
    cache: make(redis),
    killRedis: () => server.stop(),
    mend: async () => {
      await server.start();
      // Until the client has come back to a server that was started again.
      if (redis.status !== 'ready' && redis.status !== 'wait')
        await new Promise<void>((resolve) => redis.once('ready', () => resolve()));
    },
    close: async () => {
      redis.disconnect();
      await server.close();
      await folder.remove();
    },
  };
}

/** Of three nodes; which of them has a key is as the key falls. */
async function openCluster(make: (redis: RedisClient) => Cache): Promise<HarnessRedis> {
  const cluster = await startRedisCluster();
  const redis = connect(cluster.url, 'cluster');
  return {
    cache: make(redis),
    killRedis: nothing,
    mend: nothing,
    close: async () => {
      redis.disconnect();
      await cluster.close();
    },
  };
}

function connect(url: string, mode: 'single' | 'cluster' = 'single'): RedisClient {
  return createRedis({ url, mode, commandTimeoutMs: 5000, onError: () => {} });
}
