import { setTimeout as delay } from 'node:timers/promises';
import { monotonicMs } from '../../shared/core/clock.ts';
import type { Environment } from './environment.ts';
import { freePort } from './ports.ts';
import {
  type Child,
  describeExit,
  type Exit,
  fileSize,
  HANG_MS,
  type Launch,
  launch,
  readFrom,
  waitForLine,
} from './process.ts';

/** A server on this machine that can be taken away and brought back on the same port. */
export interface Server {
  readonly url: string;
  readonly port: number;
  /** Of the running process; undefined while it is stopped. */
  readonly pid: number | undefined;
  /** Which program this is and where it came from, in words. */
  readonly origin: string;
  /** Brings a stopped (or dead) server back; does nothing to a running one. */
  start(): Promise<void>;
  /** Ends the process and keeps its data and its port; open connections are cut. */
  stop(): Promise<void>;
  /** Ends it for good. What it wrote goes with the run folder. */
  close(): Promise<void>;
}

/** What every kind of server can be asked for. */
export interface ServerOptions {
  /** The folder for its data and its log, as `createRunFolder` makes it. */
  readonly runDir: string;
  /** Where others have been told that it will be; else a free one. */
  readonly port?: number | undefined;
  /** Ends it when aborted, also while it is not up yet, and whatever is being fetched for it. */
  readonly signal?: AbortSignal | undefined;
  /** Called when the process ends without having been asked to. */
  readonly onExit?: ((exit: Exit) => void) | undefined;
  /** Default: the process' own. */
  readonly env?: Environment;
  /** Default: to standard error. */
  readonly log?: (line: string) => void;
}

export interface ServerPlan extends Pick<ServerOptions, 'port' | 'signal' | 'onExit'> {
  readonly name: string;
  readonly origin: string;
  launch(port: number): Launch;
  url(port: number): string;
  /** The log line that says that it accepts connections. */
  readonly ready: RegExp;
  /** A start that fails with this is tried again: it passes by itself. */
  readonly passing?: RegExp;
  readonly stopSignals: readonly NodeJS.Signals[];
  readonly closeSignals: readonly NodeJS.Signals[];
}

const PORT_TAKEN = /address already in use/i;
const PORT_TRIES_MAX = 5;
/** For each signal; then the next, and at last SIGKILL. Long, since a cluster cut off recovers at its next start. */
const STOP_WITHIN_MS = 60_000;

/** Starts a server on a free port and resolves when it accepts connections. */
export async function startServer(plan: ServerPlan): Promise<Server> {
  const { child: first, port } = await startOnFreePort(plan);
  let running: Child | undefined;
  let closed = false;

  const adopt = (child: Child) => {
    running = child;
    void child.exited.then((exit) => {
      if (running !== child) return;
      running = undefined;
      if (!plan.signal?.aborted) plan.onExit?.(exit);
    });
  };
  const end = async (signals: readonly NodeJS.Signals[]) => {
    const child = running;
    running = undefined;
    await child?.stop(signals, STOP_WITHIN_MS);
  };
  // One after the other: a start that overtakes a stop would find the port taken by its own server.
  let last: Promise<void> = Promise.resolve();
  const inOrder = (task: () => Promise<void>) => {
    last = last.then(task, task);
    return last;
  };
  adopt(first);

  return {
    url: plan.url(port),
    port,
    origin: plan.origin,
    get pid() {
      return running?.pid;
    },
    start: () =>
      inOrder(async () => {
        if (closed) throw new Error(`${plan.name} is closed`);
        if (running === undefined) adopt(await startOnSamePort(plan, port));
      }),
    stop: () => inOrder(() => end(plan.stopSignals)),
    close: () =>
      inOrder(async () => {
        closed = true;
        await end(plan.closeSignals);
      }),
  };
}

type Outcome = { readonly child: Child } | { readonly output: string };

async function tryPort(plan: ServerPlan, port: number): Promise<Outcome> {
  const launched = { ...plan.launch(port), signal: plan.signal };
  const log = { file: launched.logFile, offset: await fileSize(launched.logFile) };
  const child = await launch(launched);
  if (await waitForLine(child, log, plan.ready)) return { child };
  const late = child.hasExited() ? '' : `not ready after ${HANG_MS / 1000} s, `;
  const exit = await child.stop([], 0);
  return { output: `${late}${describeExit(exit)}\n${await readFrom(log.file, log.offset)}` };
}

async function startOnFreePort(plan: ServerPlan): Promise<{ child: Child; port: number }> {
  for (let tries = 1; ; tries++) {
    const port = plan.port ?? (await freePort());
    const outcome = await tryPort(plan, port);
    if ('child' in outcome) return { ...outcome, port };
    // Someone was quicker to take the port that was free a moment ago.
    const again =
      PORT_TAKEN.test(outcome.output) && tries < PORT_TRIES_MAX && plan.port === undefined;
    if (!again) throw new Error(`${plan.name} did not start: ${outcome.output}`);
  }
}

async function startOnSamePort(plan: ServerPlan, port: number): Promise<Child> {
  for (const endMonotonicMs = monotonicMs() + HANG_MS; ; await delay(50)) {
    const outcome = await tryPort(plan, port);
    if ('child' in outcome) return outcome.child;
    const passes = PORT_TAKEN.test(outcome.output) || plan.passing?.test(outcome.output) === true;
    if (!passes || monotonicMs() > endMonotonicMs) {
      throw new Error(`${plan.name} did not start again on port ${port}: ${outcome.output}`);
    }
  }
}
