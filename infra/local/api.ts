import { mkdir, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { monotonicMs } from '../../shared/core/clock.ts';
import type { Backend } from './backend.ts';
import { environment } from './environment.ts';
import { print } from './output.ts';
import { freePort } from './ports.ts';
import { type Child, describeExit, lastLines, launch } from './process.ts';
import { PROJECT_FOLDER, paths, shown } from './project.ts';

export interface ApiOptions {
  readonly url: string;
  readonly backend: Backend;
  /** Ends it when aborted. */
  readonly signal: AbortSignal;
}

const POLL_MS = 50;
/** Between two lines that say what is waited for. */
const REPORT_MS = 15_000;

/**
 * Runs the functions of serverless.yml under serverless-offline and resolves when GET /health says
 * that they can work. How long that takes is the machine's business: it waits as long as the
 * process lives, and says what for. Throws with the end of the log when the process ends before.
 */
export async function startApi({ url, backend, signal }: ApiOptions): Promise<Child> {
  await mkdir(paths.localFolder, { recursive: true });
  await writeFile(paths.apiLog, '', { mode: 0o600 });
  const ports = {
    httpPort: Number(new URL(url).port),
    lambdaPort: await freePort(),
    // These two open no port without such events; they are here so that one never is a fixed one.
    websocketPort: await freePort(),
    albPort: await freePort(),
  };
  const child = await launch({
    command: process.execPath,
    args: [
      await realpath(join(PROJECT_FOLDER, 'node_modules', '.bin', 'serverless')),
      // Its own environment, and the purge on an event of its own: see serverless.yml.
      ...['offline', 'start', '--stage', 'local'],
      ...Object.entries(ports).flatMap(([name, port]) => [`--${name}`, String(port)]),
    ],
    env: { ...environment(), ...backend.variables },
    cwd: PROJECT_FOLDER,
    logFile: paths.apiLog,
    signal,
  });
  if (await waitUntilHealthy(child, `${url}/health`)) return child;
  const end = describeExit(await child.exited);
  const log = await lastLines(paths.apiLog, 20);
  throw new Error(`the API ${end}; the end of ${shown(paths.apiLog)}:\n${log}`);
}

/** @returns false when the process has ended. */
async function waitUntilHealthy(child: Child, url: string): Promise<boolean> {
  let seen = 'nobody answers yet';
  for (let reportAtMs = monotonicMs() + REPORT_MS; !child.hasExited(); await delay(POLL_MS)) {
    try {
      const response = await fetch(url, { signal: AbortSignal.timeout(REPORT_MS) });
      const text = await response.text();
      seen = `${response.status} ${text}`;
      // The body decides: serverless-offline answers 200 for a handler that threw, too.
      if (response.status === 200 && /"status":\s*"(ok|degraded)"/.test(text)) return true;
    } catch {
      // Not listening yet.
    }
    if (monotonicMs() < reportAtMs) continue;
    reportAtMs = monotonicMs() + REPORT_MS;
    print(`still waiting for the API (${shown(paths.apiLog)}): GET /health: ${seen.slice(0, 300)}`);
  }
  return false;
}
