import { startApi } from './api.ts';
import { banner, masked } from './banner.ts';
import { cacheFolder } from './cache-folder.ts';
import type { LocalInstance } from './control-client.ts';
import { type Controlled, startControlServer } from './control-server.ts';
import { type DatabaseUrls, prepareDatabase } from './database.ts';
import { prepareTable } from './dynamodb-table.ts';
import type { Environment } from './environment.ts';
import { claimLocalFile } from './local-file.ts';
import { describeExit, type Exit } from './process.ts';
import { paths } from './project.ts';
import { type Part, type PartName, type Services, startServices } from './services.ts';

export type Instance = {
  banner: string;
  /** Settles when the API ends without having been asked to. */
  apiExited: Promise<Exit>;
  close(): Promise<void>;
};

/** Connections to Postgres for each function. */
const apiPoolMax = '20';
const usualTable = 'backstop';

export type InstanceOptions = {
  port: number;
  env: Environment;
  log: (line: string) => void;
};

/** Thrown when another instance runs from this folder. */
export class AlreadyRunning extends Error {
  constructor({ url, pid }: LocalInstance) {
    super(`already running from this folder: ${url} (pid ${pid})`);
  }
}

/**
 * Brings up the whole local service, from the servers to an API that answers. What has been
 * started when a step fails is ended before this throws.
 */
export async function startInstance(options: InstanceOptions): Promise<Instance> {
  const undo: (() => Promise<void>)[] = [];
  const close = async () => {
    // Backwards: the API goes before the stores that it talks to.
    for (const step of undo.splice(0).reverse()) await step().catch(() => {});
  };
  try {
    return { ...(await bringUp(options, undo)), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function bringUp(
  { port, env, log }: InstanceOptions,
  undo: (() => Promise<void>)[],
): Promise<Omit<Instance, 'close'>> {
  const url = `http://127.0.0.1:${port}`;
  const controlled = {} as Controlled;
  const control = await startControlServer(() => controlled);
  undo.push(control.close);
  const instance: LocalInstance = {
    pid: process.pid,
    state: 'starting',
    url,
    control: control.path,
    log: paths.apiLog,
  };
  controlled.instance = instance;
  const file = await claimLocalFile(instance);
  if ('other' in file) throw new AlreadyRunning(file.other);
  undo.push(file.remove);

  const services = await startServices({ env, log, onExit: reportTo(log) });
  undo.push(services.close);
  const table = env['DYNAMODB_TABLE'] || usualTable;
  // Not waited for: until it is there its routes answer 503, and the rest of the service works.
  const closing = new AbortController();
  undo.push(async () => closing.abort());
  void bringTable(services.dynamodb, table, (line) => closing.signal.aborted || log(line));
  const urls = await prepareDatabase(services.postgres, log);
  const api = await startApi({
    port,
    env: { ...apiEnvironment(env, port, urls, services), DYNAMODB_TABLE: table },
    logFile: paths.apiLog,
    log,
  });
  undo.push(async () => void (await api.stop(['SIGTERM'], 5_000)));

  const ready: LocalInstance = {
    ...instance,
    state: 'ready',
    ...addresses(urls, services),
    dynamodbTable: table,
  };
  await file.write(ready);
  controlled.instance = ready;
  controlled.services = services;
  return { banner: banner(url, urls.api, services), apiExited: api.exited };
}

/** Makes the table once DynamoDB is there, and says in a line what came of it. */
async function bringTable(
  dynamodb: Part,
  table: string,
  log: (line: string) => void,
): Promise<void> {
  const part = dynamodb.from === 'starting' ? await dynamodb.settled : dynamodb;
  if (part.from === 'nowhere') return log(`no DynamoDB: ${part.reason}`);
  try {
    await prepareTable(part.url, table);
    log(`dynamodb is up: ${part.url}`);
  } catch (error) {
    log(`no table ${table} at ${masked(part.url)}: ${(error as Error).message}`);
  }
}

function reportTo(log: (line: string) => void): (name: PartName, exit: Exit) => void {
  return (name, exit) =>
    log(`${name} ${describeExit(exit)}; \`npm run local -- start ${name}\` brings it back`);
}

function apiEnvironment(
  env: Environment,
  port: number,
  urls: DatabaseUrls,
  services: Services,
): Environment {
  return {
    ...env,
    DATABASE_URL: urls.api,
    PURGE_DATABASE_URL: urls.purge,
    // Undefined is left out: without Redis the service runs without its fast path.
    REDIS_URL: services.redis.url,
    // Also where there is none: without it the AWS SDK would go to the developer's own account.
    DYNAMODB_ENDPOINT: services.dynamodb.url,
    PORT: String(port),
    // On Lambda each environment serves one request at a time; here one process serves them all.
    BACKSTOP_POOL_MAX: env['BACKSTOP_POOL_MAX'] ?? apiPoolMax,
    NODE_ENV: 'development',
    AWS_REGION: env.AWS_REGION ?? 'us-east-1',
    POWERTOOLS_DEV: 'false',
    // osls keeps a compiled schema; by default in a folder of its own in the developer's home.
    SLS_SCHEMA_CACHE_BASE_DIR: cacheFolder(env),
  };
}

function addresses(urls: DatabaseUrls, services: Services): Partial<LocalInstance> {
  return {
    databaseUrl: urls.api,
    purgeDatabaseUrl: urls.purge,
    adminDatabaseUrl: urls.admin,
    ...(services.redis.url !== undefined && { redisUrl: services.redis.url }),
    ...(services.dynamodb.url !== undefined && { dynamodbEndpoint: services.dynamodb.url }),
  };
}
