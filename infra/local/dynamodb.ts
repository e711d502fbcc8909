import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type DynamodbProgram, findDynamodb } from './dynamodb-program.ts';
import { type Environment, environment, serverEnvironment } from './environment.ts';
import { complain } from './output.ts';
import type { Exit } from './process.ts';
import type { Missing } from './redis-program.ts';
import { createServerFolder } from './run-folder.ts';
import { type Server, startServer } from './server.ts';

export type DynamodbServer = Server;

export type DynamodbOptions = {
  /** The folder that the data go into, as `createRunFolder` makes it. */
  runDir: string;
  /** Where others have been told that it will be; else a free one. */
  port?: number | undefined;
  /** Ends it, and whatever is being fetched for it. */
  signal?: AbortSignal | undefined;
  /** Called when the server ends without having been asked to. */
  onExit?: ((exit: Exit) => void) | undefined;
  env?: Environment;
  log?: (line: string) => void;
};

/** As `startDynamodb`, but answers with the reason, and what to do, when there is none to run. */
export async function startDynamodbIfAny(
  options: DynamodbOptions,
): Promise<DynamodbServer | Missing> {
  const { env = environment(), log = complain, signal } = options;
  const program = await findDynamodb({ env, log, signal });
  return 'missing' in program ? program : startProgram(program, options);
}

/**
 * Starts a DynamoDB Local without tables on a loopback port. It keeps its data on disk, so that they
 * are there again after a stop and a start: a marker that was lost would be a second run.
 */
export async function startDynamodb(options: DynamodbOptions): Promise<DynamodbServer> {
  const server = await startDynamodbIfAny(options);
  if ('missing' in server) throw new Error(`no DynamoDB: ${server.missing}`);
  return server;
}

async function startProgram(
  program: DynamodbProgram,
  { runDir, port, signal, onExit, env }: DynamodbOptions,
): Promise<DynamodbServer> {
  const folder = await createServerFolder(runDir, 'dynamodb');
  const data = join(folder, 'data');
  await mkdir(data);
  const path = (env ?? environment()).PATH ?? '';
  const logFile = join(folder, 'dynamodb.log');
  return startServer({
    name: 'DynamoDB',
    origin: program.origin,
    logFile,
    port,
    launch: (onPort) => ({
      command: program.command,
      args: [
        ...program.before(onPort, data),
        ...['-port', String(program.port(onPort)), '-dbPath', program.data(data)],
        // One database for all regions and credentials.
        ...['-sharedDb', '-disableTelemetry'],
      ],
      env: { ...serverEnvironment(folder, path), ...program.env },
      cwd: folder,
      logFile,
      signal,
    }),
    url: (onPort) => `http://127.0.0.1:${onPort}`,
    ready: program.ready,
    stopSignals: ['SIGTERM'],
    closeSignals: ['SIGKILL'],
    onExit,
    remove: () => rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }),
  });
}
