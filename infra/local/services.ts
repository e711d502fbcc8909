import { startDynamodbIfAny } from './dynamodb.ts';
import { type Environment, environment, forgetPostgresVariables } from './environment.ts';
import { complain } from './output.ts';
import { freePort } from './ports.ts';
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
  /** A late one: this is where it will be, and `settled` what came of it. */
  | { from: 'starting'; url: string; settled: Promise<Part> }
  | { from: 'nowhere'; url: undefined; reason: string }
  /** A late one: this is where it was to be. */
  | { from: 'nowhere'; url: string; reason: string };

export type PartStart = {
  runDir: string;
  env: Environment;
  log: (line: string) => void;
  onExit: (exit: Exit) => void;
  /** Of a late part: where the others have been told that it will be. */
  port?: number;
  /** Aborted when it is not wanted any more, though it may not be up yet. */
  signal: AbortSignal;
};

/**
 * The parts. Another one is another line: the environment variable that overrides it, and how it
 * is started; `required` means that without it there is no service at all, `late` that nobody waits
 * for it: it is known from the first moment where it will be.
 */
const parts = {
  postgres: { variable: 'DATABASE_URL', required: true, late: false, start: startPostgres },
  redis: { variable: 'REDIS_URL', required: false, late: false, start: startRedisIfAny },
  dynamodb: {
    variable: 'DYNAMODB_ENDPOINT',
    required: false,
    late: true,
    start: startDynamodbIfAny,
  },
} as const satisfies Record<string, PartPlan>;

type PartPlan = {
  variable: string;
  required: boolean;
  late: boolean;
  start: (options: PartStart) => Promise<Server | { missing: string }>;
};

export type PartName = keyof typeof parts;
export const partNames = Object.keys(parts) as readonly PartName[];

/** The environment variable that overrides a part. */
export function variableOf(name: PartName): string {
  return parts[name].variable;
}

/** What a late part is changes, once, when it has settled. */
export type Services = Readonly<Record<PartName, Part>> & {
  /** The run's folder, which `close` removes. */
  runDir: string;
  close(): Promise<void>;
};

export type ServicesOptions = {
  /** DATABASE_URL, REDIS_URL and DYNAMODB_ENDPOINT in it override a part. Default: the process' own. */
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
  if (!env[variableOf('postgres')]) forgetPostgresVariables();
  const log = options.log ?? complain;
  const onExit =
    options.onExit ?? ((name, exit) => log(`${name} ${describeExit(exit)} without being asked to`));
  const folder = await createRunFolder();
  const unwanted = new AbortController();
  const starts = partNames.map(async (name) => {
    const start = {
      runDir: folder.path,
      env,
      log,
      onExit: (exit: Exit) => onExit(name, exit),
      signal: unwanted.signal,
    };
    return [name, await startPart(parts[name], start)] as const;
  });
  const outcomes = await Promise.allSettled(starts);
  const failure = outcomes.find((one) => one.status === 'rejected');
  const started = outcomes.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const running = Object.fromEntries(started) as Record<PartName, Part>;
  const close = async () => {
    if (Object.values(running).some(({ from }) => from === 'starting')) unwanted.abort();
    await Promise.all(started.map(([, part]) => closePart(part)));
    await folder.remove();
  };
  if (failure !== undefined) {
    await close();
    throw failure.reason;
  }
  const services = Object.assign(running, { runDir: folder.path, close });
  for (const [name, part] of started) {
    if (part.from === 'starting') void part.settled.then((settled) => (running[name] = settled));
  }
  return services;
}

async function closePart(part: Part): Promise<void> {
  const settled = part.from === 'starting' ? await part.settled : part;
  if (settled.from === 'local') await settled.server.close();
}

async function startPart(plan: PartPlan, start: PartStart): Promise<Part> {
  const given = start.env[plan.variable];
  if (given !== undefined && given !== '') {
    return { from: 'environment', url: given, variable: plan.variable };
  }
  if (!plan.late) return startOrSayWhy(plan, start, undefined);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  return { from: 'starting', url, settled: startOrSayWhy(plan, { ...start, port }, url) };
}

async function startOrSayWhy(
  plan: PartPlan,
  start: PartStart,
  url: string | undefined,
): Promise<Part> {
  try {
    const server = await plan.start(start);
    if (!('missing' in server)) return { from: 'local', url: server.url, server };
    return { from: 'nowhere', url, reason: server.missing };
  } catch (error) {
    if (plan.required) throw error;
    return { from: 'nowhere', url, reason: (error as Error).message };
  }
}
