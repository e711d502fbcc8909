/**
 * Nothing that was started here may outlive the process that started it, even when that one is killed
 * with SIGKILL and can do nothing any more. So each program is started by a few words of shell that
 * arrange for it, and then become the program: the pid stays the same.
 */
import { spawnSync } from 'node:child_process';
import { isMainThread } from 'node:worker_threads';

export interface Command {
  readonly command: string;
  readonly args: readonly string[];
}

const SHELL = '/bin/sh';
const SETPRIV = '/usr/bin/setpriv';

/** Asks the system once. BusyBox has a setpriv too, which does not know this option. */
let kernelSignals: boolean | undefined;

/**
 * The same command; it gets `signal` when this process has ended. `watched` says that the command
 * expects the read end of a pipe as its descriptor 3, which this process holds open.
 */
export function endWithParent(
  command: Command,
  signal: NodeJS.Signals,
): Command & { watched: boolean } {
  // The kernel sends the signal when the thread that forked has ended, not the process.
  if (!isMainThread) throw new Error('servers are started from the main thread alone');
  kernelSignals ??= spawnSync(SETPRIV, ['--pdeathsig', 'KILL', SHELL, '-c', ':']).status === 0;
  return kernelSignals ? signalledByKernel(command, signal) : watchedByShell(command, signal);
}

/**
 * Linux: PR_SET_PDEATHSIG. It survives exec, but no change of the user, which therefore comes before.
 * Should this process have ended before it was set, the shell has another parent by now.
 */
export function signalledByKernel({ command, args }: Command, signal: NodeJS.Signals) {
  const script = '[ "$PPID" = "$0" ] && exec "$@"';
  const shell = [SHELL, '-c', script, String(process.pid), command, ...args];
  const name = signal.replace('SIG', '');
  return { command: SETPRIV, args: ['--pdeathsig', name, '--', ...shell], watched: false };
}

/** Elsewhere: a subshell waits until the pipe is closed, which the kernel does when this process ends. */
export function watchedByShell({ command, args }: Command, signal: NodeJS.Signals) {
  const name = signal.replace('SIG', '');
  const script = `(read -r line <&3; kill -${name} $$) & exec "$@" 3<&-`;
  return { command: SHELL, args: ['-c', script, SHELL, command, ...args], watched: true };
}
