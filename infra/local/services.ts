import { type Environment, environment } from './environment.ts';
import { complain } from './output.ts';
import { startPostgres } from './postgres.ts';
import { describeExit, type Exit } from './process.ts';
import { startRedisIfAny } from './redis.ts';
import { createRunFolder } from './run-folder.ts';
import type { Server } from './server.ts';

/** One service that the product needs, as this run has it. */
export type Part =
  | { from: 'local'; url: string; server: Server }
  /** The developer's own, named in this environment variable: used, never stopped. */
  | { from: 'environment'; url: string; variable: string }
  | { from: 'nowhere'; url: undefined; reason: string };

export type PartStart = {
  runDir: string;
  env: Environment;
  log: (line: string) => void;
  onExit: (exit: Exit) => void;
};

/**
 * The parts. Another one is another line: the environment variable that overrides it, and how it
 * is started; `required` means that without it there is no service at all.
 */
const parts = {
  postgres: { variable: 'DATABASE_URL', required: true, start: startPostgres },
  redis: { variable: 'REDIS_URL', required: false, start: startRedisIfAny },
} as const satisfies Record<string, PartPlan>;

type PartPlan = {
  variable: string;
  required: boolean;
  start: (options: PartStart) => Promise<Server | { missing: string }>;
};

export type PartName = keyof typeof parts;
export const partNames = Object.keys(parts) as readonly PartName[];

export type Services = Readonly<Record<PartName, Part>> & {
  /** The run's folder, which `close` removes. */
  runDir: string;
  close(): Promise<void>;
};

export type ServicesOptions = {
  /** DATABASE_URL and REDIS_URL in it override a part. Default: the process' own. */
  env?: Environment;
  /** Default: to standard error. */
  log?: (line: string) => void;
  /** Called when a part ends without having been asked to. The others go on. */
  onExit?: (name: PartName, exit: Exit) => void;
};

/**
 * Brings up, all at once, each part that the environment does not override, in a run folder of
 * its own. A part that is not required may come back as `{ from: 'nowhere', reason }`.
 */
export async function startServices(options: ServicesOptions = {}): Promise<Services> {
  const env = options.env ?? environment();
  const log = options.log ?? complain;
  const onExit =
    options.onExit ?? ((name, exit) => log(`${name} ${describeExit(exit)} without being asked to`));
  const folder = await createRunFolder();
  const starts = partNames.map(async (name) => {
    const start = {
      runDir: folder.path,
      env,
      log,
      onExit: (exit: Exit) => onExit(name, exit),
    };
    return [name, await startPart(parts[name], start)] as const;
  });
  const outcomes = await Promise.allSettled(starts);
  const started = outcomes.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const close = async () => {
    const servers = started.flatMap(([, part]) => (part.from === 'local' ? [part.server] : []));
    await Promise.all(servers.map((server) => server.close()));
    await folder.remove();
  };
  const failure = outcomes.find((one) => one.status === 'rejected');
  if (failure !== undefined) {
    await close();
    throw failure.reason;
  }
  return {
    ...(Object.fromEntries(started) as Record<PartName, Part>),
    runDir: folder.path,
    close,
  };
}

async function startPart(plan: PartPlan, start: PartStart): Promise<Part> {
  const given = start.env[plan.variable];
  if (given !== undefined && given !== '') {
    return { from: 'environment', url: given, variable: plan.variable };
  }
  try {
    const server = await plan.start(start);
    if (!('missing' in server)) return { from: 'local', url: server.url, server };
    return { from: 'nowhere', url: undefined, reason: server.missing };
  } catch (error) {
    if (plan.required) throw error;
    return {
      from: 'nowhere',
      url: undefined,
      reason: (error as Error).message,
    };
  }
}
