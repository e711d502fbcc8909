/**
 * `npm start`: the whole service on this machine, until Ctrl-C. `npm run services` (--without-api): the
 * same without the API, for a serverless-offline of the developer's own.
 */
import { parseArgs } from 'node:util';
import { startApi } from './api.ts';
import { conflictingVariables, startBackend, writeEnvFile } from './backend.ts';
import { banner, servicesBanner } from './banner.ts';
import { type Control, takeControl } from './control-server.ts';
import { type Environment, environment } from './environment.ts';
import { print, printError } from './output.ts';
import { freePort, isFree } from './ports.ts';
import { describeExit, type Exit, lastLines } from './process.ts';
import { paths } from './project.ts';
import { onParentExit, onShutdownSignal } from './shutdown.ts';

const USUAL_PORT = 3000;
const USAGE = 'usage: npm start, or npm run services';

interface CliOptions {
  readonly withoutApi: boolean;
  readonly port: number;
}

async function main(): Promise<number> {
  // As it is now: what is about servers of the developer's own is forgotten later.
  const shell = { ...environment() };
  const options = await parseCliOptions(shell);
  if (typeof options === 'string') return refuse(options);
  const { withoutApi, port } = options;
  const url = `http://127.0.0.1:${port}`;
  const control = await takeControl(withoutApi ? undefined : url);
  // Before the port: that one of ours has it says more than that it is taken.
  if ('other' in control) {
    const where = control.other.url ?? 'the services alone';
    return refuse(`already running from this folder: ${where} (pid ${control.other.pid})`);
  }
  const undo = [control.close];
  try {
    if (!withoutApi && !(await isFree(port))) {
      return refuse(
        `port ${port} is taken: end what listens there, or choose another: PORT=3001 npm start`,
      );
    }
    return await run({ url, withoutApi, shell, control }, undo);
  } finally {
    // Backwards: the API goes before the stores that it talks to.
    for (const step of undo.reverse()) await step().catch(() => {});
  }
}

/** What to bring up, or why it is refused. */
async function parseCliOptions({ PORT: word }: Environment): Promise<CliOptions | string> {
  try {
    const options = { 'without-api': { type: 'boolean', default: false } } as const;
    const withoutApi = parseArgs({ options }).values['without-api'];
    const port = word === undefined || word === '' ? USUAL_PORT : Number(word);
    if (!Number.isInteger(port) || port < 0 || port > 65_535) return `PORT=${word} is not a port`;
    return { withoutApi, port: port === 0 ? await freePort() : port };
  } catch {
    return USAGE;
  }
}

function refuse(message: string): number {
  printError(message);
  return 2;
}

interface Run {
  readonly url: string;
  readonly withoutApi: boolean;
  readonly shell: Environment;
  readonly control: Control;
}

/** Until it is asked to end, or the API ends; `undo` says how what there is then is ended. */
async function run({ url, withoutApi, shell, control }: Run, undo: (() => Promise<void>)[]) {
  const asked = Promise.withResolvers<void>();
  const starting = new AbortController();
  let isReady = false;
  const stop = () => {
    asked.resolve();
    // Half a start has no order in which to be undone.
    if (!isReady) starting.abort();
  };
  onShutdownSignal(stop);
  if (shell['npm_lifecycle_event'] !== undefined) {
    onParentExit(() => {
      printError('npm has ended, so this ends too');
      stop();
    });
  }
  const { signal } = starting;
  try {
    const backend = await startBackend({ env: environment(), log: print, signal });
    undo.push(backend.close);
    const api = withoutApi ? undefined : await startApi({ url, backend, signal });
    undo.push(
      withoutApi
        ? await writeEnvFile(backend)
        : async () => void (await api?.stop(['SIGTERM'], 5_000)),
    );
    await control.ready(backend.addresses, backend.services);
    signal.throwIfAborted();
    isReady = true;
    print(
      api ? banner(url, backend) : servicesBanner(backend, conflictingVariables(shell, backend)),
    );
    const ended = await Promise.race(api ? [asked.promise, api.exited] : [asked.promise]);
    return ended === undefined ? 0 : await reportEnd(ended);
  } catch (error) {
    if (signal.aborted) return 0;
    printError(`could not start: ${(error as Error).message}`);
    return 1;
  }
}

async function reportEnd(exit: Exit): Promise<number> {
  printError(`the API ${describeExit(exit)} by itself:\n${await lastLines(paths.apiLog, 20)}`);
  return 1;
}

process.exit(await main());
