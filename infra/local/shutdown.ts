import { monotonicMs } from '../../shared/core/clock.ts';

/** npm passes a terminal's Ctrl-C on to us, who have had it already: two signals, one request. */
const SAME_REQUEST_MS = 500;
const PARENT_POLL_MS = 500;

/** Calls `stop` at the first signal; at a later one the process ends at once, and what it started with it. */
export function onShutdownSignal(stop: () => void): void {
  let firstMs: number | undefined;
  const request = () => {
    const nowMs = monotonicMs();
    if (firstMs !== undefined && nowMs - firstMs > SAME_REQUEST_MS) process.exit(1);
    if (firstMs === undefined) stop();
    firstMs ??= nowMs;
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, request);
}

/** Some shells stand between npm and us and do not pass a signal on; then we see them go. */
export function onParentExit(then: () => void): void {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    then();
  }, PARENT_POLL_MS);
  timer.unref();
}
