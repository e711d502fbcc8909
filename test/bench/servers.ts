/** The servers of a comparison, the delay before them, and the processes that are compared. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { startDynamodb } from '../../infra/local/dynamodb.ts';
import { prepareTable } from '../../infra/local/dynamodb-table.ts';
import { startRedis } from '../../infra/local/redis.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import { bundleAll, type Variant } from './bundle.ts';
import type { DelayAnswer, DelayRequest } from './delay-proxy.ts';
import type { RunAnswer, RunRequest } from './environment.ts';
import { type BenchPostgres, openBenchPostgres } from './postgres.ts';

export interface BenchServers {
  readonly postgres: BenchPostgres;
  readonly bundles: Readonly<Record<Variant, string>>;
  /** Settings of an environment that lead past the proxy. */
  readonly direct: Readonly<Record<string, string>>;
  readonly redis: { stop(): Promise<void>; start(): Promise<void> };
  /** Asks the process that stands before the servers. */
  proxy(request: DelayRequest): Promise<DelayAnswer>;
  /** A new player with all the coins there are. */
  newPlayer(): Promise<string>;
  /** One more execution environment, with its modules loaded. */
  environment(variant: Variant, settings?: Record<string, string>): Promise<Environment>;
  close(): Promise<void>;
}

export interface Environment {
  /** How long its modules took to load. */
  readonly importMs: number;
  run(request: RunRequest): Promise<RunAnswer>;
  close(): Promise<void>;
}

const TABLE = 'backstop-bench';
const PLAYERS_COINS = Number.MAX_SAFE_INTEGER;

export async function openBenchServers(): Promise<BenchServers> {
  const folder = await createRunFolder();
  const [postgres, redis, dynamodb, bundles] = await Promise.all([
    openBenchPostgres(),
    startRedis({ runDir: folder.path }),
    startDynamodb({ runDir: folder.path }),
    bundleAll(folder.path),
  ]);
  await prepareTable(dynamodb.url, TABLE);
  const admin = await postgres.connect();
  const apiUrl = new URL(postgres.url);
  apiUrl.username = 'backstop_api';
  const proxy = startProcess('delay-proxy.ts', [], {});
  const servers = {
    DATABASE_URL: apiUrl.href,
    REDIS_URL: redis.url,
    DYNAMODB_ENDPOINT: dynamodb.url,
  };
  const { urls } = (await proxy.ask({
    kind: 'open',
    urls: servers,
  } satisfies DelayRequest)) as DelayAnswer;
  const environments = new Set<Environment>();
  let players = 0;
  return {
    postgres,
    bundles,
    direct: servers,
    redis,
    proxy: (request) => proxy.ask(request) as Promise<DelayAnswer>,
    newPlayer: async () => {
      const principal = `player-${++players}`;
      const values = [principal, PLAYERS_COINS];
      await admin.query('INSERT INTO players (user_id, coins) VALUES ($1, $2)', values);
      return principal;
    },
    environment: async (variant, settings = {}) => {
      const process = startProcess('environment.ts', [bundles[variant]], {
        ...urls,
        DYNAMODB_TABLE: TABLE,
        BACKSTOP_NAMESPACE: 'bench',
        ...settings,
      });
      const { importMs } = (await process.heard()) as { readonly importMs: number };
      const environment: Environment = {
        importMs,
        run: async (request) => {
          const answer = (await process.ask(request)) as RunAnswer;
          if (answer.error !== undefined) throw new Error(`${variant}: ${answer.error}`);
          return answer;
        },
        close: async () => {
          environments.delete(environment);
          await process.close();
        },
      };
      environments.add(environment);
      return environment;
    },
    close: async () => {
      await Promise.all([...environments].map((environment) => environment.close()));
      await proxy.close();
      await Promise.all([postgres.close(), redis.close(), dynamodb.close()]);
      await folder.remove();
    },
  };
}

/** A process that answers each message with one. */
function startProcess(file: string, args: readonly string[], env: Record<string, string>) {
  const child = fork(new URL(file, import.meta.url), args, {
    // As on Lambda: errors go to a log, and the function's output to nobody here.
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: ['--disable-warning=ExperimentalWarning'],
    env: { NODE_ENV: 'production', ...env },
  });
  const lost = gone(child, file);
  lost.catch(() => {}); // Heard by whoever waits for an answer.
  const heard = async () => {
    const [answer] = await Promise.race([once(child, 'message'), lost]);
    return answer as unknown;
  };
  return {
    heard,
    ask: (request: object) => {
      child.send(request);
      return heard();
    },
    close: async () => {
      if (child.exitCode !== null) return;
      child.disconnect();
      await once(child, 'exit');
    },
  };
}

async function gone(child: ChildProcess, file: string): Promise<never> {
  const [code, signal] = await once(child, 'exit');
  throw new Error(`${file} ended by itself (${code ?? signal})`);
}
