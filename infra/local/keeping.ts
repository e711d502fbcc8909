import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { environment } from './environment.ts';
import type { Held, Message } from './keeper.ts';

/** What holds a thing until it is let go. */
export type Hold = { release(): Promise<void> };

type Keeper = { child: ChildProcess; holds: Set<string> };

// One keeper a process, started with the first thing to hold and ended with the last.
let keeper: Keeper | undefined;
let everythingEnds = false;

/**
 * Sees to it that `what` is ended or removed when this process goes without having released it,
 * whatever the reason. Folders are best held before they are made.
 */
export function hold(what: Held): Hold {
  assertNothingEnds();
  keeper ??= startKeeper();
  const { child, holds } = keeper;
  const id = randomUUID();
  holds.add(id);
  send(child, { hold: id, what });
  return {
    release: async () => {
      if (!holds.delete(id) || everythingEnds) return;
      send(child, { release: id });
      if (holds.size > 0) return;
      if (keeper?.child === child) keeper = undefined;
      await endKeeper(child);
    },
  };
}

/**
 * Ends and removes all that is held, now, and resolves when it is gone. Nothing can be started
 * afterwards. For the moments when there is no order to keep: an interrupted or failed start.
 */
export async function endEverything(): Promise<void> {
  everythingEnds = true;
  if (keeper !== undefined) await endKeeper(keeper.child);
}

/** Whether `endEverything` was called: what ends from then on was meant to. */
export function everythingIsToEnd(): boolean {
  return everythingEnds;
}

/** Throws once `endEverything` was called: what was started now would never be ended. */
export function assertNothingEnds(): void {
  if (everythingEnds) throw new Error('shutting down');
}

function startKeeper(): Keeper {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'keeper.ts')], {
    cwd: '/',
    detached: true,
    env: { NODE_COMPILE_CACHE: environment().NODE_COMPILE_CACHE },
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  // Its input is the one sign of life that it waits for; it must not keep this process alive.
  child.unref();
  (child.stdin as Socket).unref();
  child.stdin?.on('error', () => {});
  child.on('error', () => {});
  return { child, holds: new Set() };
}

function send(child: ChildProcess, message: Message): void {
  child.stdin?.write(`${JSON.stringify(message)}\n`);
}

async function endKeeper(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const exit = once(child, 'exit');
  child.ref();
  child.stdin?.end();
  await exit;
}
