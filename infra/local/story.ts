/**
 * `npm run story [-- --json]`: shows on a running service what Backstop promises, and ends with 1 on
 * any difference. Uses the service that runs from this folder, or the one at API_URL, or starts one.
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { askControl, type LocalInstance, runningInstance } from './control-client.ts';
import { environment } from './environment.ts';
import { complain, print } from './output.ts';
import { describeExit, lastLines, launch, waitForLine } from './process.ts';
import { projectFolder } from './project.ts';
import { createRunFolder } from './run-folder.ts';
import { storyClient } from './story-client.ts';
import { type Facts, type RedisSwitch, type Step, tellStory } from './story-steps.ts';

const player = 'alice';

type Stage = { url: string; control: string | undefined; close(): Promise<void> };

async function main(): Promise<number> {
  const json = wantsJson();
  if (json === undefined) {
    complain('usage: npm run story [-- --json]');
    return 2;
  }
  const say = (line: string) => (json ? complain(line) : print(line));
  const stage = await findStage(say);
  const steps: Step[] = [];
  const tell = (step: Step) => {
    steps.push(step);
    if (!json) print(asText(step));
  };
  const redis = redisSwitch(stage.control);
  const stopListening = bringRedisBackOnInterrupt(redis);
  try {
    await tellStory(storyClient(stage.url, player), redis, tell);
  } catch (error) {
    const seen = { error: (error as Error).message };
    tell({ name: 'the story', ok: false, expected: { error: null }, seen });
  } finally {
    stopListening();
    await stage.close();
  }
  const ok = steps.every((step) => 'leftOut' in step || step.ok);
  if (json) print(JSON.stringify({ ok, url: stage.url, steps }));
  else print(ok ? '\nall as expected' : '\nsomething differs');
  return ok ? 0 : 1;
}

function wantsJson(): boolean | undefined {
  try {
    return parseArgs({ options: { json: { type: 'boolean', default: false } } }).values.json;
  } catch {
    return undefined;
  }
}

async function findStage(say: (line: string) => void): Promise<Stage> {
  const given = environment().API_URL?.replace(/\/$/, '');
  const running = await runningInstance();
  const close = async () => {};
  if (given !== undefined && given !== '') {
    return { url: given, control: running?.url === given ? running.control : undefined, close };
  }
  if (running?.state === 'starting') throw new Error(`${running.url} is still starting`);
  if (running !== undefined) {
    say(`on the running service at ${running.url}`);
    return { url: running.url, control: running.control, close };
  }
  say('nothing runs from this folder: starting a service for the story');
  return startStage();
}

async function startStage(): Promise<Stage> {
  const folder = await createRunFolder();
  const logFile = join(folder.path, 'start.log');
  const start = await launch({
    command: process.execPath,
    args: [join(import.meta.dirname, 'start.ts')],
    env: { ...environment(), PORT: '0' },
    cwd: projectFolder,
    logFile,
  });
  const close = async () => {
    await start.stop(['SIGTERM'], 20_000);
    await folder.remove();
  };
  const ready = await waitForLine(start, { file: logFile, offset: 0 }, /^ready /m);
  const instance = ready ? await runningInstance() : undefined;
  if (instance !== undefined) return { url: instance.url, control: instance.control, close };
  const how = start.hasExited() ? describeExit(await start.exited) : 'is not ready';
  const log = await lastLines(logFile, 30);
  await close();
  throw new Error(`the service ${how}:\n${log}`);
}

function redisSwitch(control: LocalInstance['control'] | undefined): RedisSwitch {
  return async (verb) => {
    if (control === undefined) return 'this service was not started from this folder';
    const { status, message } = await askControl(control, 'POST', `/${verb}/redis`);
    return status === 200 ? undefined : message;
  };
}

/** The service may be someone's own: it is not left without its Redis. */
function bringRedisBackOnInterrupt(redis: RedisSwitch): () => void {
  const back = () => void redis('start').finally(() => process.exit(130));
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, back);
  return () => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, back);
  };
}

function asText(step: Step): string {
  if ('leftOut' in step) return `-  ${step.name}\n     left out: ${step.leftOut}`;
  const lines = [
    `     expected ${factsAsText(step.expected)}`,
    `     seen     ${factsAsText(step.seen)}`,
  ];
  if (step.note !== undefined) lines.push(`              (${step.note})`);
  return [`${step.ok ? 'ok' : 'NO'} ${step.name}`, ...lines].join('\n');
}

function factsAsText(facts: Facts): string {
  return Object.entries(facts)
    .map(([name, value]) => `${name} ${value === null ? 'none' : value}`)
    .join(', ');
}

try {
  process.exitCode = await main();
} catch (error) {
  complain((error as Error).message);
  process.exitCode = 1;
}
