/**
 * The shared servers of a test run in containers. A run imports it only with
 * `SERVICES=docker`, as it takes a second to load.
 */
import { GenericContainer, type StartedTestContainer, Wait } from 'testcontainers';
import { CLUSTER_ARGUMENTS, postgresArguments } from '../../infra/local/postgres.ts';
import { redisArguments } from '../../infra/local/redis.ts';
import { type ServiceName, variableOf } from '../../infra/local/services.ts';
import { IMAGES } from './images.ts';

export interface Containers {
  /** The addresses, under the names of the environment variables that say them. */
  readonly urls: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

interface Plan {
  readonly port: number;
  make(): GenericContainer;
  url(hostPort: number): string;
}

const READY_WITHIN_MS = 120_000;

const PLANS: Readonly<Record<ServiceName, Plan>> = {
  postgres: {
    port: 5432,
    make: () =>
      new LoopbackContainer(IMAGES.postgres)
        .withEnvironment({
          POSTGRES_HOST_AUTH_METHOD: 'trust',
          POSTGRES_INITDB_ARGS: CLUSTER_ARGUMENTS.join(' '),
        })
        .withTmpFs({ '/var/lib/postgresql/data': 'rw' })
        .withCommand(['postgres', ...postgresArguments({})])
        // Over TCP: the image's own preparations run a server that listens on its socket alone.
        .withWaitStrategy(Wait.forSuccessfulCommand('pg_isready -h 127.0.0.1 -U postgres')),
    url: (hostPort) => `postgres://postgres@127.0.0.1:${hostPort}/postgres`,
  },
  redis: {
    port: 6379,
    make: () =>
      new LoopbackContainer(IMAGES.redis)
        .withCommand([
          'valkey-server',
          ...redisArguments({ bind: '*', port: '6379', 'protected-mode': 'no' }),
        ])
        .withWaitStrategy(Wait.forLogMessage(/Ready to accept connections/i)),
    url: (hostPort) => `redis://127.0.0.1:${hostPort}`,
  },
  dynamodb: {
    port: 8000,
    make: () =>
      new LoopbackContainer(IMAGES.dynamodb)
        .withCommand(['-jar', 'DynamoDBLocal.jar', '-inMemory', '-sharedDb', '-disableTelemetry'])
        // It refuses a request without credentials: it is there.
        .withWaitStrategy(Wait.forHttp('/', 8000).forStatusCode(400)),
    url: (hostPort) => `http://127.0.0.1:${hostPort}`,
  },
};

/** None of them has a password, so that they must not be had from another machine. */
class LoopbackContainer extends GenericContainer {
  protected override async beforeContainerCreated(): Promise<void> {
    this.hostConfig.PortBindings = onLoopback(this.hostConfig.PortBindings);
  }
}

/** The same ports, each to be published on a free one of 127.0.0.1. */
export function onLoopback(bindings: object = {}) {
  return Object.fromEntries(
    Object.keys(bindings).map((port) => [port, [{ HostIp: '127.0.0.1', HostPort: '0' }]]),
  );
}

/** Starts them all at once, and ends those that did when one does not. */
export async function startContainers(names: readonly ServiceName[]): Promise<Containers> {
  const outcomes = await Promise.allSettled(names.map(startContainer));
  const started = outcomes.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const close = async () => {
    await Promise.all(started.map(({ container }) => container.stop()));
  };
  const failure = outcomes.find((one) => one.status === 'rejected');
  if (failure !== undefined) {
    await close();
    throw failure.reason;
  }
  return { urls: Object.fromEntries(started.map(({ variable, url }) => [variable, url])), close };
}

async function startContainer(name: ServiceName) {
  const { port, make, url } = PLANS[name];
  const starting = make().withExposedPorts(port).withStartupTimeout(READY_WITHIN_MS);
  const container: StartedTestContainer = await starting.start().catch((error: Error) => {
    throw new Error(
      `SERVICES is "docker", and ${IMAGES[name]} does not start: ${error.message}. Start a Docker engine on this machine that can have this image, set ${variableOf(name)}, or leave SERVICES out.`,
      { cause: error },
    );
  });
  return { container, variable: variableOf(name), url: url(container.getMappedPort(port)) };
}
