/**
 * `npm run story [-- --json]`: shows on a running service what Backstop promises, and ends with 1 on
 * any difference. Uses the service that runs from this folder, or the one at API_URL, or starts one.
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import {
  type LocalInstance,
  runningInstance,
  sendCommand,
} from '../../infra/local/control-client.ts';
import { environment, keepLoopbackOffProxies } from '../../infra/local/environment.ts';
import { print, printError } from '../../infra/local/output.ts';
import { describeExit, lastLines, launch, waitForLine } from '../../infra/local/process.ts';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import { onShutdownSignal } from '../../infra/local/shutdown.ts';
import { type StepResult, type TargetService, tellStory } from './story.ts';

type Target = TargetService & { close?(): Promise<void> };

async function main(): Promise<number> {
  const options = parseCliOptions();
  if (options === undefined) {
    printError('usage: npm run story [-- --json]');
    return 2;
  }
  keepLoopbackOffProxies();
  const target = await findTarget(options.json ? printError : print);
  // The service may be someone's own: it is not left without its Redis.
  onShutdownSignal(async () => {
    if (target.control !== undefined) await sendCommand(target.control, 'start redis');
    process.exit(130);
  });
  const steps: StepResult[] = [];
  const report = (step: StepResult) => {
    steps.push(step);
    if (!options.json) print(describeStep(step));
  };
  try {
    await tellStory(target, report);
  } catch (error) {
    const seen = { error: (error as Error).message };
    report({ name: 'the story', ok: false, expected: { error: null }, seen, note: '' });
  } finally {
    await target.close?.();
  }
  const ok = steps.every((step) => 'leftOut' in step || step.ok);
  if (options.json) print(JSON.stringify({ ok, url: target.url, steps }));
  else print(ok ? '\nall as expected' : '\nsomething differs');
  return ok ? 0 : 1;
}

function parseCliOptions(): { json: boolean } | undefined {
  try {
    return parseArgs({ options: { json: { type: 'boolean', default: false } } }).values;
  } catch {
    return undefined;
  }
}

async function findTarget(log: (line: string) => void): Promise<Target> {
  const given = environment().API_URL?.replace(/\/$/, '');
  const running = await runningInstance();
  if (given) {
    // Somebody's own API on our servers, or on servers of their own.
    const isOurs = running !== undefined && (running.url ?? given) === given;
    return { url: given, control: isOurs ? running.control : undefined };
  }
  if (running === undefined) {
    log('nothing runs from this folder: starting a service for the story');
    return startTarget();
  }
  log(`on the running service at ${running.url}`);
  return targetOf(running);
}

function targetOf({ url, control, databaseUrl }: LocalInstance): TargetService {
  if (databaseUrl === undefined) throw new Error('the service is still starting');
  if (url !== undefined) return { url, control };
  throw new Error('only the servers run: say where the API is, API_URL=http://127.0.0.1:3000');
}

async function startTarget(): Promise<Target> {
  const folder = await createRunFolder();
  const logFile = join(folder.path, 'start.log');
  const start = await launch({
    command: process.execPath,
    args: [join(PROJECT_FOLDER, 'infra', 'local', 'start.ts')],
    env: { ...environment(), PORT: '0' },
    cwd: PROJECT_FOLDER,
    logFile,
    endSignal: 'SIGTERM',
  });
  const close = async () => {
    await start.stop(['SIGTERM'], 20_000);
    await folder.remove();
  };
  const isReady = await waitForLine(start, { file: logFile, offset: 0 }, /^ready /m);
  const running = isReady ? await runningInstance() : undefined;
  if (running !== undefined) return { ...targetOf(running), close };
  const how = start.hasExited() ? describeExit(await start.exited) : 'is not ready';
  const log = await lastLines(logFile, 30);
  await close();
  throw new Error(`the service ${how}:\n${log}`);
}

function describeStep(step: StepResult): string {
  if ('leftOut' in step) return `-  ${step.name}\n     left out: ${step.leftOut}`;
  const [expected, seen] = [step.expected, step.seen].map((facts) =>
    Object.entries(facts)
      .map(([name, value]) => `${name} ${value ?? 'none'}`)
      .join(', '),
  );
  const mark = step.ok ? 'ok' : 'NO';
  return `${mark} ${step.name}\n     expected ${expected}\n     seen     ${seen}  (${step.note})`;
}

try {
  process.exitCode = await main();
} catch (error) {
  printError((error as Error).message);
  process.exitCode = 1;
}
