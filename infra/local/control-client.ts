import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { HANG_MS } from './process.ts';
import { paths } from './project.ts';
import { connectionError } from './run-folder.ts';

/** What the running instance says of itself in `.backstop/local.json`. */
export interface LocalInstance {
  readonly pid: number;
  /** The API's; absent where only the servers run. */
  readonly url?: string;
  /** The unix socket that takes commands. */
  readonly control: string;
  /** From here on: once everything is ready. The API's role, the purge's, and the one that migrates. */
  readonly databaseUrl?: string;
  readonly purgeDatabaseUrl?: string;
  readonly adminDatabaseUrl?: string;
  readonly redisUrl?: string | undefined;
  readonly dynamodbEndpoint?: string | undefined;
  readonly dynamodbTable?: string;
}

/** `code` is what the command that asked exits with: 0, 2 for a refusal, 1 for a failure. */
export interface ControlAnswer {
  readonly code: number;
  readonly message: string;
}

/**
 * The instance that runs from this folder, or undefined. The file and its pid may be left from one
 * that was killed, and the pid belong to another process by now; its socket takes no connections then.
 */
export async function runningInstance(): Promise<LocalInstance | undefined> {
  try {
    const instance = JSON.parse(await readFile(paths.localFile, 'utf8')) as LocalInstance;
    return (await connectionError(instance.control)) === undefined ? instance : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Sends one line, such as `stop redis`, and waits for the answer, which comes when it is done.
 * Rejects when nobody listens.
 */
export async function sendCommand(socketPath: string, command: string): Promise<ControlAnswer> {
  const socket = connect(socketPath);
  socket.setTimeout(HANG_MS, () => {
    socket.destroy(new Error(`no answer within ${HANG_MS / 1000} s`));
  });
  socket.write(`${command}\n`);
  const answer = await text(socket);
  if (answer === '') throw new Error('the service ended before it answered');
  return JSON.parse(answer) as ControlAnswer;
}
