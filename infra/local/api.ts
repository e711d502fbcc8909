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
};

const readyBoundMs = 60_000;
const pollMs = 50;

/**
 * Runs the functions of serverless.yml under serverless-offline and resolves when GET /health says
 * that they can work. Throws with the end of the log when they do not get there.
 */
export async function startApi({ port, env, logFile }: ApiOptions): Promise<Child> {
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
  const problem = await waitUntilHealthy(child, `http://127.0.0.1:${port}/health`);
  if (problem === undefined) return child;
  await child.stop(['SIGTERM'], 2_000);
  throw new Error(
    `the API ${problem}; the end of ${shown(paths.apiLog)}:\n${await lastLines(logFile, 20)}`,
  );
}

async function waitUntilHealthy(child: Child, url: string): Promise<string | undefined> {
  let seen = 'nothing';
  for (const deadline = Date.now() + readyBoundMs; Date.now() < deadline; await delay(pollMs)) {
    if (child.hasExited()) return describeExit(await child.exited);
    try {
      const response = await fetch(url, { signal: AbortSignal.timeout(5_000) });
      const text = await response.text();
      seen = `${response.status} ${text}`;
      // The body decides: serverless-offline answers 200 for a handler that threw, too.
      if (response.status === 200 && /"status":\s*"(ok|degraded)"/.test(text)) return undefined;
    } catch {
      // Not listening yet.
    }
  }
  return `was not healthy after ${readyBoundMs / 1000} s (last seen: ${seen.slice(0, 300)})`;
}
