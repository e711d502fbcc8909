import { startDynamodb } from './dynamodb.ts';
import {
  type Environment,
  environment,
  forgetPostgresVariables,
  keepLoopbackOffProxies,
} from './environment.ts';
import { printError } from './output.ts';
import { freePort } from './ports.ts';
import { startPostgres } from './postgres.ts';
import { describeExit, type Exit } from './process.ts';
import { startRedis } from './redis.ts';
import { createRunFolder } from './run-folder.ts';
import type { Server, ServerOptions } from './server.ts';

/** One service that the product needs, as this run has it. */
export type Service =
  | { from: 'local'; url: string; server: Server }
  /** The developer's own, named in this environment variable: used, never stopped. */
  | { from: 'environment'; url: string; variable: string }
  /** A late one: this is where it will be, and `settled` what came of it. */
  | { from: 'starting'; url: string; settled: Promise<Service> }
  /** A late one has the address where it was to be. */
  | { from: 'nowhere'; url: string | undefined; reason: string };

interface ServicePlan {
  /** The environment variable that overrides it. */
  readonly variable: string;
  /** Without it there is no service at all. */
  readonly required: boolean;
  /** Nobody waits for it: it is known from the first moment where it will be. */
  readonly late: boolean;
  start(options: ServerOptions): Promise<Server>;
}

/** Another service is another line. */
const PLANS = {
  postgres: { variable: 'DATABASE_URL', required: true, late: false, start: startPostgres },
  redis: { variable: 'REDIS_URL', required: false, late: false, start: startRedis },
  dynamodb: { variable: 'DYNAMODB_ENDPOINT', required: false, late: true, start: startDynamodb },
} as const satisfies Record<string, ServicePlan>;

export type ServiceName = keyof typeof PLANS;
export const SERVICE_NAMES = Object.keys(PLANS) as readonly ServiceName[];

/** The environment variable that overrides a service. */
export function variableOf(name: ServiceName): string {
  return PLANS[name].variable;
}

/** What a late service is changes, once, when it has settled. */
export type Services = Readonly<Record<ServiceName, Service>> & {
  /** The run's folder, which `close` removes. */
  readonly runDir: string;
  close(): Promise<void>;
};

export interface ServicesOptions {
  /** DATABASE_URL, REDIS_URL and DYNAMODB_ENDPOINT in it override a service. Default: the process' own. */
  readonly env?: Environment;
  /** Default: to standard error. */
  readonly log?: (line: string) => void;
  /** Called when a service ends without having been asked to. The others go on. */
  readonly onExit?: (name: ServiceName, exit: Exit) => void;
  /** Gives the start up and ends all that there is. */
  readonly signal?: AbortSignal;
}

/**
 * Brings up, all at once, each service that the environment does not override, in a run folder of
 * its own. One that is not required may come back as `{ from: 'nowhere', reason }`.
 */
export async function startServices(options: ServicesOptions = {}): Promise<Services> {
  const { env = environment(), log = printError } = options;
  keepLoopbackOffProxies();
  if (!env[variableOf('postgres')]) forgetPostgresVariables();
  const onExit =
    options.onExit ?? ((name, exit) => log(`${name} ${describeExit(exit)} without being asked to`));
  const folder = await createRunFolder();
  const unwanted = new AbortController();
  const signals = [unwanted.signal, ...(options.signal === undefined ? [] : [options.signal])];
  const common = { runDir: folder.path, env, log, signal: AbortSignal.any(signals) };
  const starts = SERVICE_NAMES.map(async (name) => {
    const start = { ...common, onExit: (exit: Exit) => onExit(name, exit) };
    return [name, await startService(PLANS[name], env[variableOf(name)], start)] as const;
  });
  const outcomes = await Promise.allSettled(starts);
  const failure = outcomes.find((one) => one.status === 'rejected');
  const started = outcomes.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const running = Object.fromEntries(started) as Record<ServiceName, Service>;
  const close = async () => {
    if (Object.values(running).some(({ from }) => from === 'starting')) unwanted.abort();
    await Promise.all(started.map(([, service]) => closeService(service)));
    await folder.remove();
  };
  if (failure !== undefined) {
    await close();
    throw failure.reason;
  }
  for (const [name, service] of started) {
    if (service.from !== 'starting') continue;
    void service.settled.then((settled) => (running[name] = settled));
  }
  return Object.assign(running, { runDir: folder.path, close });
}

async function closeService(service: Service): Promise<void> {
  const settled = service.from === 'starting' ? await service.settled : service;
  if (settled.from === 'local') await settled.server.close();
}

async function startService(
  plan: ServicePlan,
  given: string | undefined,
  start: ServerOptions,
): Promise<Service> {
  if (given !== undefined && given !== '') {
    return { from: 'environment', url: given, variable: plan.variable };
  }
  if (!plan.late) return startOrSayWhy(plan, start, undefined);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  return { from: 'starting', url, settled: startOrSayWhy(plan, { ...start, port }, url) };
}

async function startOrSayWhy(
  plan: ServicePlan,
  start: ServerOptions,
  url: string | undefined,
): Promise<Service> {
  try {
    const server = await plan.start(start);
    return { from: 'local', url: server.url, server };
  } catch (error) {
    if (plan.required) throw error;
    return { from: 'nowhere', url, reason: (error as Error).message };
  }
}
