import { rm, writeFile } from 'node:fs/promises';
import { cacheFolder } from './cache-folder.ts';
import type { LocalInstance } from './control-client.ts';
import { type DatabaseUrls, prepareDatabase } from './database.ts';
import { prepareTable } from './dynamodb-table.ts';
import { type Environment, noProxyVariables, postgresVariables } from './environment.ts';
import { masked } from './output.ts';
import { describeExit } from './process.ts';
import { paths } from './project.ts';
import { type Service, type Services, startServices } from './services.ts';

/** All that the API needs: the servers, a migrated and seeded database, and soon a table. */
export interface Backend {
  readonly services: Services;
  /** What the functions are told. */
  readonly variables: Readonly<Record<string, string>>;
  readonly addresses: Partial<LocalInstance>;
  close(): Promise<void>;
}

export interface BackendOptions {
  readonly env: Environment;
  readonly log: (line: string) => void;
  /** Gives the start up and ends all that there is. */
  readonly signal: AbortSignal;
}

/** Connections to Postgres for each function. */
const API_POOL_MAX = '20';
const USUAL_TABLE = 'backstop';

/** What has been started when a step fails is ended before this throws. */
export async function startBackend({ env, log, signal }: BackendOptions): Promise<Backend> {
  const services = await startServices({
    env,
    log,
    signal,
    onExit: (name, exit) =>
      log(`${name} ${describeExit(exit)}; \`npm run local -- start ${name}\` brings it back`),
  });
  const closing = new AbortController();
  const close = async () => {
    closing.abort();
    await services.close();
  };
  try {
    const table = env['DYNAMODB_TABLE'] || USUAL_TABLE;
    // Not waited for: until it is there its routes answer 503, and the rest of the service works.
    void bringTable(services.dynamodb, table, (line) => closing.signal.aborted || log(line));
    const urls = await unlessAborted(prepareDatabase(services.postgres, log), signal);
    return {
      services,
      variables: { ...apiVariables(env, urls, services), DYNAMODB_TABLE: table },
      addresses: {
        databaseUrl: urls.api,
        purgeDatabaseUrl: urls.purge,
        adminDatabaseUrl: urls.admin,
        redisUrl: services.redis.url,
        dynamodbEndpoint: services.dynamodb.url,
        dynamodbTable: table,
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Somebody's own database may not answer at all: nobody waits for it who was asked to end. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
  });
  signal.throwIfAborted();
  return Promise.race([promise, aborted]);
}

/** Makes the table once DynamoDB is there, and says in a line what came of it. */
async function bringTable(
  dynamodb: Service,
  table: string,
  log: (line: string) => void,
): Promise<void> {
  const service = dynamodb.from === 'starting' ? await dynamodb.settled : dynamodb;
  if (service.from === 'nowhere') return log(`no DynamoDB: ${service.reason}`);
  try {
    await prepareTable(service.url, table);
    log(`dynamodb is up: ${service.url}`);
  } catch (error) {
    log(`no table ${table} at ${masked(service.url)}: ${(error as Error).message}`);
  }
}

function apiVariables(env: Environment, urls: DatabaseUrls, services: Services) {
  return {
    ...noProxyVariables(env),
    DATABASE_URL: urls.api,
    PURGE_DATABASE_URL: urls.purge,
    // Empty where there is none: the service then runs without its fast path.
    REDIS_URL: services.redis.url ?? '',
    // Also where there is none: without it the AWS SDK would go to the developer's own account.
    DYNAMODB_ENDPOINT: services.dynamodb.url ?? '',
    // On Lambda each environment serves one request at a time; here one process serves them all.
    BACKSTOP_POOL_MAX: env['BACKSTOP_POOL_MAX'] ?? API_POOL_MAX,
    NODE_ENV: 'development',
    AWS_REGION: env.AWS_REGION ?? 'us-east-1',
    POWERTOOLS_DEV: 'false',
    // osls keeps a compiled schema; by default in a folder of its own in the developer's home.
    SLS_SCHEMA_CACHE_BASE_DIR: cacheFolder(env),
  };
}

/** Leaves the variables for a serverless-offline that somebody starts; the result removes them. */
export async function writeEnvFile({ variables }: Backend): Promise<() => Promise<void>> {
  const lines = Object.entries(variables).map(([name, value]) => {
    const quote = ["'", '"', '`'].find((mark) => !value.includes(mark)) ?? "'";
    return `${name}=${quote}${value}${quote}\n`;
  });
  const remove = () => rm(paths.envFile, { force: true });
  await remove();
  // Private, since DATABASE_URL may hold a password.
  await writeFile(paths.envFile, lines.join(''), { mode: 0o600 });
  return remove;
}

/** What the shell has set otherwise: Node prefers that to what stands in an env file. */
export function conflictingVariables(shell: Environment, { variables, services }: Backend) {
  const others = Object.keys(variables).filter(
    (name) => (shell[name] ?? '') !== '' && shell[name] !== variables[name],
  );
  return services.postgres.from === 'environment'
    ? others
    : [...postgresVariables(shell), ...others];
}
