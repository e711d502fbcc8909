import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { open, readFile, stat } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { assertNothingEnds, hold } from './keeping.ts';
import { signalProcess, startedAt } from './process-table.ts';

/**
 * How long a program of ours may take to start, to do its one task, or to end when it is told to.
 * Only one that hangs takes so long, on however busy a machine, and from however slow a network.
 */
export const hangMs = 600_000;

/** A user and group to run as; absent: one's own. */
export type Identity = { uid: number; gid: number };

export type Launch = {
  command: string;
  args: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  cwd: string;
  /** Standard output and error are appended here: a pipe would block a server once it is full. */
  logFile: string;
  identity?: Identity | undefined;
  /** What the keeper sends should this process die; the quickest end that leaves nothing. */
  lastSignal?: NodeJS.Signals;
  /** Kills it when aborted. */
  signal?: AbortSignal | undefined;
};

export type Exit = { code: number | null; signal: NodeJS.Signals | null };

export type Child = {
  readonly pid: number;
  /** Settles when the process has ended and its group with it. Never rejects. */
  readonly exited: Promise<Exit>;
  hasExited(): boolean;
  /** Sends each signal in turn, with a bound for each, then SIGKILL to the whole group. */
  stop(signals: readonly NodeJS.Signals[], boundMs: number): Promise<Exit>;
};

/**
 * Starts a process in its own session, so that a Ctrl-C in the terminal reaches only us and we end
 * it in order, and has the keeper hold it. Throws when the program cannot be started.
 */
export async function launch(plan: Launch): Promise<Child> {
  assertNothingEnds();
  plan.signal?.throwIfAborted();
  const child = spawnDetached(plan);
  const { pid } = child;
  if (pid === undefined) {
    const [error] = await once(child, 'error');
    throw new Error(`cannot run ${plan.command}: ${(error as Error).message}`);
  }
  const signal = plan.lastSignal ?? 'SIGTERM';
  const held = hold({ kind: 'process', pid, startedAt: startedAt(pid), signal });
  const kill = () => void signalProcess(-pid, 'SIGKILL');
  plan.signal?.addEventListener('abort', kill);
  const exited = exitOf(child).then(async (exit) => {
    plan.signal?.removeEventListener('abort', kill);
    // Its helpers are in its group, and would go on without it.
    signalProcess(-pid, 'SIGKILL');
    await held.release();
    return exit;
  });
  const hasExited = () => child.exitCode !== null || child.signalCode !== null;
  const stop = async (signals: readonly NodeJS.Signals[], boundMs: number) => {
    for (const polite of signals) {
      if (hasExited()) break;
      child.kill(polite);
      await within(exited, boundMs);
    }
    if (!hasExited()) signalProcess(-pid, 'SIGKILL');
    return exited;
  };
  return { pid, exited, hasExited, stop };
}

function exitOf(child: ChildProcess): Promise<Exit> {
  return new Promise((resolve) => child.once('exit', (code, signal) => resolve({ code, signal })));
}

function spawnDetached({ command, args, env, cwd, logFile, identity }: Launch): ChildProcess {
  const log = openSync(logFile, 'a', 0o600);
  try {
    return spawn(command, args, {
      cwd,
      env,
      detached: true,
      stdio: ['ignore', log, log],
      ...identity,
    });
  } finally {
    closeSync(log);
  }
}

/** Runs a program to its end; throws with the last lines that it wrote when it fails. */
export async function runToEnd(plan: Launch): Promise<void> {
  const child = await launch(plan);
  const done = await within(child.exited, hangMs);
  const exit = done ?? (await child.stop([], 0));
  if (exit.code === 0) return;
  const how = done === undefined ? `took over ${hangMs / 1000} s` : describeExit(exit);
  throw new Error(`${plan.command} ${how}\n${await lastLines(plan.logFile, 15)}`);
}

/** Waits until the log holds `line` after `offset`; false when the process ended, or hangs. */
export async function waitForLine(
  child: Child,
  log: { file: string; offset: number },
  line: RegExp,
): Promise<boolean> {
  for (const deadline = Date.now() + hangMs; Date.now() < deadline; await delay(10)) {
    const ended = child.hasExited();
    if (line.test(await readFrom(log.file, log.offset))) return true;
    if (ended) return false;
  }
  return false;
}

/** The promise's value, or undefined when it has not come within the bound. */
export async function within<T>(promise: Promise<T>, boundMs: number): Promise<T | undefined> {
  const over = new AbortController();
  const timer = delay(boundMs, undefined, { signal: over.signal }).catch(() => undefined);
  try {
    return await Promise.race([promise, timer]);
  } finally {
    over.abort();
  }
}

export function describeExit({ code, signal }: Exit): string {
  return signal === null ? `ended with code ${code}` : `was ended by ${signal}`;
}

export async function fileSize(file: string): Promise<number> {
  return (await stat(file).catch(() => undefined))?.size ?? 0;
}

export async function readFrom(file: string, offset: number): Promise<string> {
  const handle = await open(file, 'r');
  try {
    const { size } = await handle.stat();
    const bytes = Buffer.alloc(Math.max(0, size - offset));
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, offset);
    return bytes.toString('utf8', 0, bytesRead);
  } finally {
    await handle.close();
  }
}

export async function lastLines(file: string, count: number): Promise<string> {
  const text = await readFile(file, 'utf8').catch(() => '');
  return text.trimEnd().split('\n').slice(-count).join('\n');
}
