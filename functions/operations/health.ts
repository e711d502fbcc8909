import {
  deployedDynamoService,
  deployedService,
  PROBLEM_KINDS,
  type QueryRoute,
  type Service,
} from '../../shared/index.ts';

/** Long enough for a cold connection, short enough for a load balancer. */
const ANSWER_WITHIN_MS = 1500;

/**
 * Postgres is what the service cannot do without; the rest costs speed or single routes.
 *
 * @param others dependencies that the service itself does not know of.
 */
export function health(others: Service['dependencies'] = {}): QueryRoute {
  return {
    name: 'health',
    isPublic: true,
    run: async ({ service }) => {
      const all = Object.entries({ ...service.dependencies, ...others });
      const asked = all.map(
        async ([name, ask]) => [name, (await isUp(ask)) ? 'up' : 'down'] as const,
      );
      const dependencies: Record<string, string> = Object.fromEntries(await Promise.all(asked));
      const isDown = dependencies['postgres'] === 'down';
      const isDegraded = Object.values(dependencies).includes('down');
      return {
        statusCode: isDown ? PROBLEM_KINDS.UNAVAILABLE.status : 200,
        headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
        body: JSON.stringify({
          status: isDown ? 'down' : isDegraded ? 'degraded' : 'ok',
          dependencies,
        }),
      };
    },
  };
}

async function isUp(ask: () => Promise<unknown>): Promise<boolean> {
  const { promise: silence, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error('no answer')), ANSWER_WITHIN_MS);
  try {
    await Promise.race([ask(), silence]);
    return true;
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
  }
}

export const handler = deployedService().query(health({ dynamodb: deployedDynamoService().ping }));
