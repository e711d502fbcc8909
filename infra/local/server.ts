import { setTimeout as delay } from 'node:timers/promises';
import { everythingIsToEnd } from './keeping.ts';
import { freePort } from './ports.ts';
import {
  type Child,
  describeExit,
  type Exit,
  fileSize,
  hangMs,
  type Launch,
  launch,
  readFrom,
  waitForLine,
} from './process.ts';

/** A server on this machine that can be taken away and brought back on the same port. */
export type Server = {
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
  /** Ends it for good and removes what it wrote. */
  close(): Promise<void>;
};

export type ServerPlan = {
  name: string;
  origin: string;
  logFile: string;
  /** Where others have been told that it will be; else a free one. */
  port?: number | undefined;
  launch(port: number): Launch;
  url(port: number): string;
  /** The log line that says that it accepts connections. */
  ready: RegExp;
  /** A start that fails with this is tried again: it passes by itself. */
  passing?: RegExp;
  stopSignals: readonly NodeJS.Signals[];
  closeSignals: readonly NodeJS.Signals[];
  /** Called when the process ends without having been asked to. */
  onExit?: ((exit: Exit) => void) | undefined;
  remove(): Promise<void>;
};

const portTaken = /address already in use/i;
const portTriesMax = 5;
/** For each signal; then the next, and at last SIGKILL. Long, since a cluster cut off recovers at its next start. */
const politeMs = 60_000;

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
      if (!everythingIsToEnd()) plan.onExit?.(exit);
    });
  };
  const end = async (signals: readonly NodeJS.Signals[]) => {
    const child = running;
    running = undefined;
    await child?.stop(signals, politeMs);
  };
  // One after the other: a start that overtakes a stop would find the port taken by its own server.
  const inOrder = queue();
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
        if (closed) return;
        closed = true;
        await end(plan.closeSignals);
        await plan.remove();
      }),
  };
}

type Attempt = { child: Child } | { output: string };

async function attempt(plan: ServerPlan, port: number): Promise<Attempt> {
  const log = { file: plan.logFile, offset: await fileSize(plan.logFile) };
  const child = await launch(plan.launch(port));
  if (await waitForLine(child, log, plan.ready)) return { child };
  const late = child.hasExited() ? '' : `not ready after ${hangMs / 1000} s, `;
  const exit = await child.stop([], 0);
  return {
    output: `${late}${describeExit(exit)}\n${await readFrom(log.file, log.offset)}`,
  };
}

async function startOnFreePort(plan: ServerPlan): Promise<{ child: Child; port: number }> {
  for (let tries = 1; ; tries++) {
    const port = plan.port ?? (await freePort());
    const outcome = await attempt(plan, port);
    if ('child' in outcome) return { ...outcome, port };
    // Someone was quicker to take the port that was free a moment ago.
    const again = portTaken.test(outcome.output) && tries < portTriesMax && plan.port === undefined;
    if (!again) throw new Error(`${plan.name} did not start: ${outcome.output}`);
  }
}

async function startOnSamePort(plan: ServerPlan, port: number): Promise<Child> {
  for (const deadline = Date.now() + hangMs; ; await delay(50)) {
    const outcome = await attempt(plan, port);
    if ('child' in outcome) return outcome.child;
    const passes = portTaken.test(outcome.output) || plan.passing?.test(outcome.output) === true;
    if (!passes || Date.now() > deadline) {
      throw new Error(`${plan.name} did not start again on port ${port}: ${outcome.output}`);
    }
  }
}

function queue(): (task: () => Promise<void>) => Promise<void> {
  let last: Promise<void> = Promise.resolve();
  return (task) => {
    last = last.then(task, task);
    return last;
  };
}
