import type { Environment } from '../../infra/local/environment.ts';
import { SERVICE_NAMES, type ServiceName, variableOf } from '../../infra/local/services.ts';

/**
 * The shared servers that this run takes from containers: with `SERVICES=docker` each one that
 * the environment does not name (DATABASE_URL and so on), else none.
 *
 * @throws when SERVICES says anything else.
 */
export function servicesInContainers(env: Environment): readonly ServiceName[] {
  const { SERVICES: services = '' } = env;
  if (services === '') return [];
  if (services !== 'docker') {
    throw new Error(
      `SERVICES is "${services}": the tests know the servers of this machine and those in containers. Set it to "docker", or leave it out for those of this machine.`,
    );
  }
  return SERVICE_NAMES.filter((name) => (env[variableOf(name)] ?? '') === '');
}
