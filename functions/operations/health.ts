import { setTimeout as sleep } from 'node:timers/promises';
import { json, PROBLEM_KINDS } from '../../shared/index.ts';
import {
  deployedDynamoService,
  deployedService,
  type QueryRoute,
  type Service,
} from '../../shared/service/index.ts';

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
      return json(
        isDown ? PROBLEM_KINDS.UNAVAILABLE.status : 200,
        { status: isDown ? 'down' : isDegraded ? 'degraded' : 'ok', dependencies },
        { 'cache-control': 'no-store' },
      );
    },
  };
}

/** The timer, which may outlast the answer, keeps no process alive. */
function isUp(ask: () => Promise<unknown>): Promise<boolean> {
  const answered = ask().then(
    () => true,
    () => false,
  );
  return Promise.race([answered, sleep(ANSWER_WITHIN_MS, false, { ref: false })]);
}

export const handler = deployedService().query(health({ dynamodb: deployedDynamoService().ping }));
