/** `npm start`: the whole service on this machine, until Ctrl-C. */
import { runningInstance } from './control-client.ts';
import { environment } from './environment.ts';
import { AlreadyRunning, type Instance, startInstance } from './instance.ts';
import { endEverything } from './keeping.ts';
import { complain, print } from './output.ts';
import { freePort, isFree } from './ports.ts';
import { describeExit, lastLines } from './process.ts';
import { paths } from './project.ts';

const defaultPort = 3000;
/** npm passes a terminal's Ctrl-C on to us, who have had it already: two signals, one wish. */
const sameWishMs = 500;
const parentPollMs = 500;

type Ending = { code: number; reason?: string };

async function main(): Promise<number> {
  const env = environment();
  // Before the port: that one of ours has it says more than that it is taken.
  const other = await runningInstance();
  if (other !== undefined) return refuse(new AlreadyRunning(other).message);
  const port = await choosePort(env.PORT);
  if (typeof port === 'string') return refuse(port);
  const asked = askedToEnd(env.npm_lifecycle_event !== undefined);
  const starting = startInstance({ port, env, log: print });
  try {
    const first = await Promise.race([starting, asked]);
    if (!('banner' in first)) return await endMidway(starting);
    print(first.banner);
    const ending = await Promise.race([asked, apiEnd(first)]);
    if (ending.reason !== undefined) complain(ending.reason);
    await first.close();
    return ending.code;
  } catch (error) {
    if (error instanceof AlreadyRunning) return refuse(error.message);
    complain(`could not start: ${(error as Error).message}`);
    return 1;
  }
}

async function choosePort(word: string | undefined): Promise<number | string> {
  const port = word === undefined || word === '' ? defaultPort : Number(word);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) return `PORT=${word} is not a port`;
  if (port === 0) return freePort();
  if (await isFree(port)) return port;
  return `port ${port} is taken: end what listens there, or choose another: PORT=3001 npm start`;
}

function refuse(message: string): number {
  complain(message);
  return 2;
}

/** Settles with the first wish to end. A second one ends at once; the keeper then cleans up. */
function askedToEnd(underNpm: boolean): Promise<Ending> {
  return new Promise((resolve) => {
    let firstAt: number | undefined;
    const wish = (reason?: string) => {
      const now = performance.now();
      if (firstAt !== undefined && now - firstAt > sameWishMs) process.exit(1);
      firstAt ??= now;
      resolve(reason === undefined ? { code: 0 } : { code: 0, reason });
    };
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => wish());
    if (underNpm) whenParentGoes(() => wish('npm has ended, so this ends too'));
  });
}

/** Some shells stand between npm and us and do not pass a signal on; then we see them go. */
function whenParentGoes(then: () => void): void {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    then();
  }, parentPollMs);
  timer.unref();
}

async function apiEnd({ apiExited }: Instance): Promise<Ending> {
  const exit = await apiExited;
  const log = await lastLines(paths.apiLog, 20);
  return {
    code: 1,
    reason: `the API ${describeExit(exit)} by itself:\n${log}`,
  };
}

/** Half a start has no order in which to be undone: the keeper ends all that there is. */
async function endMidway(starting: Promise<Instance>): Promise<number> {
  starting.catch(() => {});
  await endEverything();
  return 0;
}

process.exit(await main());
