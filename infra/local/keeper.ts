/**
 * The keeper: a small process of its own that outlives the one that started it by a moment. It is
 * told over its standard input what that process has started (servers) and made (folders, files).
 * When the input closes, for whatever reason (an orderly end, a crash, kill -9), it ends and
 * removes what is still held, and goes. So no run leaves anything behind.
 *
 * It runs in its own session, so a Ctrl-C in the terminal does not reach it.
 */
import { rm, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { signalProcess, startedAt } from './process-table.ts';

/** A server process, the leader of its own process group. */
export type HeldProcess = {
  kind: 'process';
  pid: number;
  startedAt: string | undefined;
  /** The polite signal, after which the process has some seconds to end in order. */
  signal: NodeJS.Signals;
};
/** A folder of ours; its name begins with `backstop-`. */
export type HeldFolder = { kind: 'folder'; path: string };
/** A file that others may replace: it is removed only while it is still this very file. */
export type HeldFile = { kind: 'file'; path: string; inode: number };
export type Held = HeldProcess | HeldFolder | HeldFile;
export type Message = { hold: string; what: Held } | { release: string };

/** How long a server may take to end politely before it is killed. */
const politeMs = 5_000;
const pollMs = 20;

async function endProcess({ pid, startedAt: start, signal }: HeldProcess): Promise<void> {
  const isOurs = () => startedAt(pid) === start && start !== undefined;
  if (!isOurs()) return;
  signalProcess(pid, signal);
  for (const deadline = Date.now() + politeMs; isOurs() && Date.now() < deadline; ) {
    await delay(pollMs);
  }
  // To the whole group, and also when the leader has ended by itself: it may have left helpers.
  signalProcess(-pid, 'SIGKILL');
}

async function removeFolder({ path }: HeldFolder): Promise<void> {
  // A guard against a mistake of ours: nothing else is ever removed with all that it holds.
  if (!basename(path).startsWith('backstop-')) return;
  // A killed server's helpers may still write for a moment: hence the retries.
  await rm(path, {
    recursive: true,
    force: true,
    maxRetries: 20,
    retryDelay: 50,
  });
}

async function removeFile({ path, inode }: HeldFile): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (found?.ino === inode) await rm(path, { force: true });
}

async function readUntilClosed(): Promise<Held[]> {
  const held = new Map<string, Held>();
  try {
    for await (const line of createInterface({ input: process.stdin })) {
      const message = JSON.parse(line) as Message;
      if ('hold' in message) held.set(message.hold, message.what);
      else held.delete(message.release);
    }
  } catch {
    // A broken input is a closed input.
  }
  return [...held.values()];
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
const left = await readUntilClosed();
// The file first: it says that something runs here. The folders last: the servers write to them.
await Promise.allSettled(left.filter((held) => held.kind === 'file').map(removeFile));
await Promise.allSettled(left.filter((held) => held.kind === 'process').map(endProcess));
await Promise.allSettled(left.filter((held) => held.kind === 'folder').map(removeFolder));
