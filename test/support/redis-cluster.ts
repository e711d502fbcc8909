/** A Redis Cluster of a test file's own: three masters on loopback, whose slots and lives it may move. */
import { Redis } from 'ioredis';
import { freePort } from '../../infra/local/ports.ts';
import { startRedis } from '../../infra/local/redis.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import type { Server } from '../../infra/local/server.ts';
import { eventually } from './waiting.ts';

export interface ClusterNode {
  readonly id: string;
  readonly url: string;
  /** A client of the test's own, of this node alone. */
  readonly raw: Redis;
  freeze(): void;
  thaw(): void;
  /** SIGKILL. It keeps its slots and none of its keys. */
  crash(): Promise<void>;
}

export interface RedisCluster {
  readonly nodes: readonly [ClusterNode, ClusterNode, ClusterNode];
  /** Of one node, which leads to the others. */
  readonly url: string;
  ownerOf(key: string): Promise<ClusterNode>;
  otherThan(...nodes: readonly ClusterNode[]): ClusterNode;
  /** The value that stands there, on whichever node. */
  read(key: string): Promise<string | null>;
  /** Hands the key's slot to `to`, with all that is in it. */
  move(key: string, to: ClusterNode): Promise<void>;
  /** Stops half way: `to` takes what the owner no longer has, and is asked for it with ASK. */
  beginMove(key: string, to: ClusterNode): Promise<void>;
  /** Takes the key's slot from everybody: the whole cluster is down until the result is called. */
  loseSlot(key: string): Promise<() => Promise<void>>;
  /** Everything up, thawed, whole and empty. */
  mend(): Promise<void>;
  close(): Promise<void>;
}

const SLOTS = 16_384;

export async function startRedisCluster(): Promise<RedisCluster> {
  const folder = await createRunFolder();
  const servers = await Promise.all([0, 1, 2].map(() => startNode(folder.path)));
  const nodes = (await Promise.all(servers.map(openNode))) as [
    ClusterNode,
    ClusterNode,
    ClusterNode,
  ];
  await join(nodes);
  const slotOf = (key: string) => nodes[0].raw.cluster('KEYSLOT', key);
  const cluster: RedisCluster = {
    nodes,
    url: nodes[0].url,
    ownerOf: async (key) => ownerOfSlot(nodes, await slotOf(key)),
    otherThan: (...taken) => nodes.find((node) => !taken.includes(node)) as ClusterNode,
    read: async (key) => (await cluster.ownerOf(key)).raw.get(key),
    beginMove: async (key, to) => {
      const slot = await slotOf(key);
      const from = await ownerOfSlot(nodes, slot);
      await to.raw.cluster('SETSLOT', slot, 'IMPORTING', from.id);
      await from.raw.cluster('SETSLOT', slot, 'MIGRATING', to.id);
    },
    move: async (key, to) => {
      const slot = await slotOf(key);
      const from = await ownerOfSlot(nodes, slot);
      await cluster.beginMove(key, to);
      const keys = await from.raw.cluster('GETKEYSINSLOT', slot, 100);
      const { hostname, port } = new URL(to.url);
      for (const each of keys) await from.raw.migrate(hostname, port, each, 0, 1000);
      await give(nodes, slot, to);
    },
    loseSlot: async (key) => {
      const slot = await slotOf(key);
      const owner = await ownerOfSlot(nodes, slot);
      for (const { raw } of nodes) {
        await raw.cluster('DELSLOTS', slot);
        await seenIn(raw, 'cluster_state:fail');
      }
      return async () => {
        await owner.raw.cluster('ADDSLOTS', slot);
      };
    },
    mend: async () => {
      for (const node of nodes) node.thaw();
      await Promise.all(servers.map((server) => server.start()));
      await whole(nodes);
      await Promise.all(nodes.map(({ raw }) => raw.flushall()));
    },
    close: async () => {
      for (const node of nodes) {
        node.raw.disconnect();
        node.thaw();
      }
      await Promise.all(servers.map((server) => server.close()));
      await folder.remove();
    },
  };
  return cluster;
}

async function startNode(runDir: string): Promise<Server> {
  return startRedis({
    runDir,
    settings: {
      'cluster-enabled': 'yes',
      'cluster-port': String(await freePort()),
      'cluster-announce-ip': '127.0.0.1',
      // Longer than any test keeps a node away: which slots are whose is the test's to say.
      'cluster-node-timeout': '15000',
    },
  });
}

async function openNode(server: Server): Promise<ClusterNode> {
  const raw = new Redis(server.url, { retryStrategy: () => 10, maxRetriesPerRequest: 1 });
  raw.on('error', () => {}); // A test that kills the server knows.
  const signal = (name: NodeJS.Signals) => {
    if (server.pid !== undefined) process.kill(server.pid, name);
  };
  return {
    id: await raw.cluster('MYID'),
    url: server.url,
    raw,
    freeze: () => signal('SIGSTOP'),
    thaw: () => signal('SIGCONT'),
    crash: async () => {
      signal('SIGKILL');
      await eventually(async () => server.pid === undefined, 'the node dead');
    },
  };
}

async function join(nodes: RedisCluster['nodes']): Promise<void> {
  const busPort = async ({ raw }: ClusterNode) =>
    Number(((await raw.config('GET', 'cluster-port')) as string[])[1]);
  const share = Math.ceil(SLOTS / nodes.length);
  for (const [n, node] of nodes.entries()) {
    const last = Math.min((n + 1) * share, SLOTS) - 1;
    await node.raw.call('CLUSTER', 'SET-CONFIG-EPOCH', n + 1);
    await node.raw.cluster('ADDSLOTSRANGE', n * share, last);
    const { hostname, port } = new URL(node.url);
    if (n > 0) await nodes[0].raw.call('CLUSTER', 'MEET', hostname, port, await busPort(node));
  }
  await whole(nodes);
}

/** Until each node knows all others and has an owner for every slot. */
async function whole(nodes: RedisCluster['nodes']): Promise<void> {
  for (const { raw } of nodes) {
    await seenIn(raw, 'cluster_state:ok', `cluster_known_nodes:${nodes.length}`);
  }
}

function seenIn(raw: Redis, ...facts: readonly string[]): Promise<true> {
  return eventually(async () => {
    const info = await raw.cluster('INFO').catch(() => '');
    return facts.every((fact) => info.includes(fact)) && true;
  }, facts.join());
}

async function ownerOfSlot(nodes: RedisCluster['nodes'], slot: number): Promise<ClusterNode> {
  for (const node of nodes) {
    const lines = String(await node.raw.cluster('NODES')).split('\n');
    const own = lines.find((line) => line.includes('myself')) ?? '';
    const ranges = own.split(' ').slice(8);
    const isOwner = ranges.some((range) => {
      const [, first, last = first] = /^(\d+)(?:-(\d+))?$/.exec(range) ?? [];
      return Number(first) <= slot && slot <= Number(last);
    });
    if (isOwner) return node;
  }
  throw new Error(`nobody owns slot ${slot}`);
}

async function give(nodes: RedisCluster['nodes'], slot: number, to: ClusterNode): Promise<void> {
  const others = nodes.filter((node) => node !== to);
  for (const { raw } of [to, ...others]) await raw.cluster('SETSLOT', slot, 'NODE', to.id);
}
