import { mkdir, realpath, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Environment } from './environment.ts';
import { freePort } from './ports.ts';
import { type Child, describeExit, lastLines, launch } from './process.ts';
import { paths, projectFolder, shown } from './project.ts';

export type ApiOptions = {
  port: number;
  env: Environment;
  logFile: string;
  log: (line: string) => void;
};

const pollMs = 50;
/** Between two lines that say what is waited for. */
const sayMs = 15_000;

/**
 * Runs the functions of serverless.yml under serverless-offline and resolves when GET /health says
 * that they can work. How long that takes is the machine's business: it waits as long as the
 * process lives, and says what for. Throws with the end of the log when the process ends before.
 */
export async function startApi({ port, env, logFile, log }: ApiOptions): Promise<Child> {
  await mkdir(dirname(logFile), { recursive: true });
  await writeFile(logFile, '', { mode: 0o600 });
  const serverless = await realpath(join(projectFolder, 'node_modules', '.bin', 'serverless'));
  const ports = { httpPort: port, lambdaPort: await freePort() };
  // These two open no port without such events; they are here so that one never is a fixed one.
  const idle = { websocketPort: await freePort(), albPort: await freePort() };
  const child = await launch({
    command: process.execPath,
    args: [
      serverless,
      'offline',
      'start',
      // Its own environment, and the purge on an event of its own: see serverless.yml.
      '--stage',
      'local',
      ...Object.entries({ ...ports, ...idle }).flatMap(([name, value]) => [
        `--${name}`,
        String(value),
      ]),
    ],
    env,
    cwd: projectFolder,
    logFile,
  });
  if (await waitUntilHealthy(child, `http://127.0.0.1:${port}/health`, log)) return child;
  const end = describeExit(await child.exited);
  throw new Error(
    `the API ${end}; the end of ${shown(paths.apiLog)}:\n${await lastLines(logFile, 20)}`,
  );
}

/** @returns false when the process has ended. */
async function waitUntilHealthy(
  child: Child,
  url: string,
  log: (line: string) => void,
): Promise<boolean> {
  let seen = 'nobody answers yet';
  for (let sayAt = Date.now() + sayMs; !child.hasExited(); await delay(pollMs)) {
    try {
      const response = await fetch(url, { signal: AbortSignal.timeout(sayMs) });
      const text = await response.text();
      seen = `${response.status} ${text}`;
      // The body decides: serverless-offline answers 200 for a handler that threw, too.
      if (response.status === 200 && /"status":\s*"(ok|degraded)"/.test(text)) return true;
    } catch {
      // Not listening yet.
    }
    if (Date.now() < sayAt) continue;
    sayAt = Date.now() + sayMs;
    log(`still waiting for the API (${shown(paths.apiLog)}): GET /health: ${seen.slice(0, 300)}`);
  }
  return false;
}
