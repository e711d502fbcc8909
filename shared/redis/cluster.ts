/**
 * A cluster, as ElastiCache Serverless always is one. What it does otherwise than a single
 * Redis may cost no more than a command's own time: a redirect is followed, within that
 * time; any other error, and no answer, is a failure at once. The map of slots
 * mends itself in the background.
 */
import { isIP } from 'node:net';
import { Cluster, type Redis, type RedisOptions } from 'ioredis';
import { TlsConnector } from './tls.ts';

/** What each connection has in common, to one Redis or to a node of a cluster. */
export type NodeOptions = Required<
  Pick<
    RedisOptions,
    | 'autoResendUnfulfilledCommands'
    | 'maxRetriesPerRequest'
    | 'connectTimeout'
    | 'socketTimeout'
    | 'keepAlive'
    | 'disableClientInfo'
  >
>;

export interface ClusterPlan {
  /** `redis://` or `rediss://`, of any node or of the cluster's one endpoint. */
  readonly url: string;
  /** From handing a command over to its end, its redirects included. */
  readonly commandTimeoutMs: number;
  /** Of each connection to a node. */
  readonly nodeOptions: NodeOptions;
  reconnectAfterMs(times: number): number;
  /** Called with the client of each node, before it connects. */
  onNode(node: Redis): void;
}

export function createCluster({ commandTimeoutMs, onNode, ...plan }: ClusterPlan): Cluster {
  const { protocol, hostname, port, username, password } = new URL(plan.url);
  const host = hostname.replace(/^\[(.+)\]$/, '$1');
  const redisOptions = {
    ...plan.nodeOptions,
    username: decodeURIComponent(username),
    password: decodeURIComponent(password),
    // A map of slots may hold addresses, and a certificate holds the name that we were given.
    ...(protocol === 'rediss:' && {
      tls: isIP(host) ? {} : { servername: host },
      Connector: TlsConnector,
    }),
    // The cluster's own check covers it, and one round trip is a lot on a cold start.
    enableReadyCheck: false,
  };
  const cluster = new Cluster([{ host, port: Number(port || 6379) }], {
    lazyConnect: true,
    enableOfflineQueue: false,
    // Names stay names, for TLS and for the load balancer behind them.
    dnsLookup: (name, resolve) => resolve(null, name),
    clusterRetryStrategy: plan.reconnectAfterMs,
    slotsRefreshTimeout: plan.nodeOptions.connectTimeout,
    maxRedirections: REDIRECTIONS_MAX,
    // No waiting and resending: an answer that was lost may have been a claim.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    redisOptions,
  });
  boundCommands(cluster, commandTimeoutMs);
  cluster.on('+node', (node: Redis) => {
    dropGivenUp(node);
    onNode(node);
  });
  return cluster;
}

/** A slot in migration takes two. */
const REDIRECTIONS_MAX = 3;

/**
 * Keeps the time of a command, which ioredis does for each node's commands alone: those
 * that it asks for the map of slots would be cut off as well, in the middle of a first
 * connection, which has a longer time.
 */
function boundCommands(cluster: Cluster, timeoutMs: number): void {
  const send = cluster.sendCommand.bind(cluster);
  cluster.sendCommand = (command, ...rest) => {
    if (command.name !== 'cluster') command.setTimeout(timeoutMs);
    return send(command, ...rest);
  };
}

/**
 * What was given up is not sent any more: neither because of a redirect that comes late,
 * nor by a node that was still connecting. A claim could come behind its own release, and
 * stand there with no owner.
 */
function dropGivenUp(node: Redis): void {
  const send = node.sendCommand.bind(node);
  node.sendCommand = (command, ...rest) =>
    command.isSettled ? command.promise : send(command, ...rest);
}
