import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, createReadStream, openSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { monotonicMs } from '../../shared/core/clock.ts';
import { withTimeout } from '../../shared/core/timeout.ts';
import { endWithParent } from './reaper.ts';

/**
 * How long a program of ours may take to start, to do its one task, or to end when it is told to.
 * Only one that hangs takes so long, on however busy a machine, and from however slow a network.
 */
export const HANG_MS = 600_000;

/** A user and group to run as; absent: one's own. */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
}

export interface Launch {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /** Standard output and error are appended here: a pipe would block a server once it is full. */
  readonly logFile: string;
  readonly identity?: Identity | undefined;
  /** Ends it at once and leaves nothing: on abort, and when this process dies. Default: SIGKILL. */
  readonly endSignal?: NodeJS.Signals;
  /** Ends it when aborted. */
  readonly signal?: AbortSignal | undefined;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface Child {
  readonly pid: number;
  /** Settles when the process has ended and its group with it. Never rejects. */
  readonly exited: Promise<Exit>;
  hasExited(): boolean;
  /** Sends each signal in turn, waits `boundMs` after each, then sends SIGKILL to the whole group. */
  stop(signals: readonly NodeJS.Signals[], boundMs: number): Promise<Exit>;
}

/**
 * Starts a process in its own session, so that a Ctrl-C in the terminal reaches only us and we end
 * it in order. It ends with us, whatever ends us. Throws when the program cannot be started.
 */
export async function launch(plan: Launch): Promise<Child> {
  plan.signal?.throwIfAborted();
  const endSignal = plan.endSignal ?? 'SIGKILL';
  const child = spawnDetached(plan, endSignal);
  const { pid } = child;
  if (pid === undefined) {
    const [error] = await once(child, 'error');
    throw new Error(`cannot run ${plan.command}: ${error.message}`);
  }
  const abort = () => void child.kill(endSignal);
  plan.signal?.addEventListener('abort', abort);
  const exited = exitOf(child).then((exit) => {
    plan.signal?.removeEventListener('abort', abort);
    // Its helpers are in its group, and would go on without it.
    killGroup(pid);
    return exit;
  });
  const hasExited = () => child.exitCode !== null || child.signalCode !== null;
  const stop = async (signals: readonly NodeJS.Signals[], boundMs: number) => {
    for (const signal of signals) {
      if (hasExited()) break;
      child.kill(signal);
      await withTimeout(exited, boundMs, () => new Error('still there')).catch(() => {});
    }
    if (!hasExited()) killGroup(pid);
    return exited;
  };
  return { pid, exited, hasExited, stop };
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // All of them have ended.
  }
}

function exitOf(child: ChildProcess): Promise<Exit> {
  return new Promise((resolve) => child.once('exit', (code, signal) => resolve({ code, signal })));
}

function spawnDetached(plan: Launch, endSignal: NodeJS.Signals): ChildProcess {
  const { command, args, watched } = endWithParent(plan, endSignal);
  const log = openSync(plan.logFile, 'a', 0o600);
  try {
    const child = spawn(command, args, {
      cwd: plan.cwd,
      env: plan.env,
      detached: true,
      stdio: ['ignore', log, log, ...(watched ? ['pipe' as const] : [])],
      ...plan.identity,
    });
    const pipe = child.stdio[3] as Socket | undefined;
    pipe?.on('error', () => {}).unref();
    return child;
  } finally {
    closeSync(log);
  }
}

/** Runs a program to its end; throws with the last lines that it wrote when it fails. */
export async function runToEnd(plan: Launch): Promise<void> {
  const child = await launch(plan);
  const exit = await withTimeout(child.exited, HANG_MS, () => new Error()).catch(() => undefined);
  if (exit === undefined) await child.stop([], 0);
  if (exit?.code === 0) return;
  const how = exit === undefined ? `took over ${HANG_MS / 1000} s` : describeExit(exit);
  throw new Error(`${plan.command} ${how}\n${await lastLines(plan.logFile, 15)}`);
}

/** Waits until the log holds `line` after `offset`; false when the process ended, or hangs. */
export async function waitForLine(
  child: Child,
  log: { file: string; offset: number },
  line: RegExp,
): Promise<boolean> {
  for (
    const endMonotonicMs = monotonicMs() + HANG_MS;
    monotonicMs() < endMonotonicMs;
    await delay(10)
  ) {
    const ended = child.hasExited();
    if (line.test(await readFrom(log.file, log.offset))) return true;
    if (ended) return false;
  }
  return false;
}

export function describeExit({ code, signal }: Exit): string {
  return signal === null ? `ended with code ${code}` : `was ended by ${signal}`;
}

export async function fileSize(file: string): Promise<number> {
  return (await stat(file).catch(() => undefined))?.size ?? 0;
}

export function readFrom(file: string, offset: number): Promise<string> {
  return text(createReadStream(file, { start: offset }));
}

export async function lastLines(file: string, count: number): Promise<string> {
  const all = await readFile(file, 'utf8').catch(() => '');
  return all.trimEnd().split('\n').slice(-count).join('\n');
}
