/**
 * `npm run purge -- [--until-drained] [--dry-run] [--workers N] [--rate-limit ROWS]`: for people, and
 * for a backlog of months. Does what the scheduled purge does, with the same parts of `shared/`, and may
 * run next to it. Ends with 0 only when nothing that has expired is left in any table.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual, parseArgs } from 'node:util';
import { ConfigError } from '../../shared/core/config-error.ts';
import { atFullSpeed, paceByRate } from '../../shared/postgres/purge/pace.ts';
import type { Retention } from '../../shared/postgres/purge/retentions.ts';
import type { Course, SweepList } from '../../shared/postgres/purge/sweeps.ts';
import type { PurgeRun } from '../../shared/postgres/purge/worker.ts';
import { openPurge, type PurgeTools } from '../../shared/service/purge.ts';
import type { PurgeSettings } from '../../shared/service/settings/postgres.ts';
import { readSettings } from '../../shared/service/settings.ts';
import { runningInstance } from './control-client.ts';
import { type Environment, environment, forgetPostgresVariables } from './environment.ts';
import { print, printError } from './output.ts';
import { about, duration, type Progress, showProgress } from './purge-progress.ts';

const usage =
  'usage: npm run purge -- [--until-drained] [--dry-run] [--workers N] [--rate-limit ROWS]';
const hint =
  'which database? Set PURGE_DATABASE_URL or DATABASE_URL, or start the local service with `npm start`';

/** Without --until-drained: as long as one scheduled run. */
const oneRunMs = 55_000;
const workersMax = 64;
/** Batches that small let a rate limit be kept from second to second. */
const batchesPerSecond = 4;
const retryMs = 1000;
/** So often in a row nothing could be deleted: then whoever holds the rest is not about to let go. */
const idlePassesMax = 30;
/** npm passes a terminal's Ctrl-C on to us, who have had it already: two signals, one wish. */
const sameWishMs = 500;

type Wishes = {
  untilDrained: boolean;
  dryRun: boolean;
  workers: number;
  /** Rows a second, all workers together. */
  rateLimit: number | undefined;
};

function wishes(): Wishes | undefined {
  try {
    const { values } = parseArgs({
      options: {
        'until-drained': { type: 'boolean', default: false },
        'dry-run': { type: 'boolean', default: false },
        workers: { type: 'string', default: '1' },
        'rate-limit': { type: 'string' },
      },
    });
    const workers = wholeNumber(values.workers, workersMax);
    const limit = values['rate-limit'];
    const rateLimit = limit === undefined ? undefined : wholeNumber(limit);
    if (workers === undefined || (limit !== undefined && rateLimit === undefined)) return undefined;
    return {
      untilDrained: values['until-drained'],
      dryRun: values['dry-run'],
      workers,
      rateLimit,
    };
  } catch {
    return undefined;
  }
}

function wholeNumber(word: string, most = Number.MAX_SAFE_INTEGER): number | undefined {
  const number = /^\d+$/.test(word) ? Number(word) : 0;
  return number > 0 && number <= most ? number : undefined;
}

async function findDatabaseUrl(env: Environment): Promise<string | undefined> {
  const given = env['PURGE_DATABASE_URL'] || env['DATABASE_URL'];
  if (given) return given;
  const instance = await runningInstance();
  // One role for everything: it is the developer's own server.
  if (instance?.purgeDatabaseUrl !== instance?.adminDatabaseUrl) forgetPostgresVariables();
  return instance?.purgeDatabaseUrl;
}

async function main(): Promise<number> {
  const wished = wishes();
  if (wished === undefined) return refuse(usage);
  const env = environment();
  const url = await findDatabaseUrl(env);
  if (url === undefined) return refuse(hint);
  let settings: PurgeSettings;
  try {
    settings = readSettings('purge', { ...env, DATABASE_URL: url }).purge;
  } catch (error) {
    if (error instanceof ConfigError) return refuse(error.message);
    throw error;
  }
  // An idle connection that breaks is no news: the next statement says so.
  const tools = openPurge(settings, wished.workers, () => {});
  try {
    const list = await tools.list();
    sayRetentions(list.retentions, settings.marginMs);
    const backlog = await measureAll(tools, list);
    // Nobody can say what was promised, or nobody answers.
    if (list.retentions.length === 0) return 1;
    if (!wished.dryRun) return await purge(tools, wished, settings, { ...list, ...backlog });
    print(`dry run: ${about(backlog.rows)} rows would be deleted`);
    return backlog.rows === 0 && backlog.isWhole ? 0 : 1;
  } finally {
    await tools.close();
  }
}

function refuse(message: string): number {
  printError(message);
  return 2;
}

function sayRetentions(retentions: readonly Retention[], marginMs: number): void {
  const by = {
    promised: 'as was promised (idempotency_retentions)',
    configured: 'as is set here (idempotency_retentions has no more)',
  };
  for (const { table, retentionMs, source } of retentions) {
    print(
      `${table}: kept for ${duration(retentionMs / 1000)}, ${by[source]}, and ${duration(marginMs / 1000)} of margin`,
    );
  }
}

/** What has expired by now, sweep by sweep. What cannot be seen is said, and keeps nobody from the rest. */
async function measureAll({ db }: PurgeTools, { sweeps }: SweepList) {
  const total = { rows: 0, isWhole: true };
  for (const { name, measure } of sweeps) {
    try {
      const { leftRows, oldestExpiredAgeSeconds } = await measure(db);
      const since =
        leftRows === 0 ? '' : `, the first of them ${duration(oldestExpiredAgeSeconds)} ago`;
      print(`${name}: ${about(leftRows)} rows have expired${since}`);
      total.rows += leftRows;
    } catch (error) {
      total.isWhole = false;
      printError(`${name}: ${messageOf(error)}`);
    }
  }
  return total;
}

async function purge(
  tools: PurgeTools,
  wished: Wishes,
  { batchRowsMax, marginMs }: PurgeSettings,
  before: { rows: number; retentions: readonly Retention[] },
): Promise<number> {
  const interrupted = interruption();
  const endMs = wished.untilDrained ? Number.POSITIVE_INFINITY : performance.now() + oneRunMs;
  const progress = showProgress(before.rows);
  const remainingMs = () => (interrupted() ? 0 : endMs - performance.now());
  let last: PurgeRun;
  try {
    const course = courseOf(wished, batchRowsMax, progress);
    last = await runPasses(tools, course, wished.untilDrained, { progress, remainingMs });
  } finally {
    progress.stop();
  }
  const { drained, leftRows, retentions } = last.result;
  // Each pass reads them anew.
  if (!isDeepStrictEqual(retentions, before.retentions)) sayRetentions(retentions, marginMs);
  const left = leftRows === null ? 'what is left could not be counted' : `${about(leftRows)} left`;
  print(`${progress.summary()}${drained ? '' : `; ${left}`}`);
  for (const { sweep, error } of last.errors) printError(`${sweep}: ${messageOf(error)}`);
  if (drained) return 0;
  print('run it again to go on: what is deleted is deleted, and nothing is half done');
  return 1;
}

type Timing = { progress: Progress; remainingMs: () => number };

async function runPasses(
  tools: PurgeTools,
  course: Course,
  untilDrained: boolean,
  { progress, remainingMs }: Timing,
): Promise<PurgeRun> {
  for (let idlePasses = 0; ; ) {
    const rowsBefore = progress.rows();
    const run = await tools.pass(course, remainingMs);
    if (run.result.drained || !untilDrained) return run;
    idlePasses = progress.rows() > rowsBefore ? 0 : idlePasses + 1;
    if (idlePasses === idlePassesMax) return run;
    // Somebody holds what is left, or the database is away: either may pass.
    const pauseEndMs = performance.now() + retryMs;
    while (performance.now() < pauseEndMs && remainingMs() > 0) await sleep(50);
    if (remainingMs() <= 0) return run;
  }
}

function courseOf({ workers, rateLimit }: Wishes, rowsMax: number, progress: Progress): Course {
  const perWorker = rateLimit === undefined ? undefined : rateLimit / workers;
  return {
    share: { worker: 0, workers: 1, loops: workers },
    batchRowsMax:
      perWorker === undefined
        ? rowsMax
        : Math.min(rowsMax, Math.max(1, Math.floor(perWorker / batchesPerSecond))),
    createPace: () => (perWorker === undefined ? atFullSpeed : paceByRate(perWorker)),
    onBatch: progress.add,
  };
}

/** Says whether the current batch is to be the last. A second wish ends at once, which is safe too. */
function interruption(): () => boolean {
  let firstMs: number | undefined;
  const wish = () => {
    const nowMs = performance.now();
    if (firstMs !== undefined && nowMs - firstMs > sameWishMs) process.exit(1);
    firstMs ??= nowMs;
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, wish);
  return () => firstMs !== undefined;
}

function messageOf(error: unknown): string {
  return error instanceof AggregateError
    ? error.errors.map(messageOf).join('; ')
    : (error as Error).message;
}

try {
  process.exitCode = await main();
} catch (error) {
  printError(messageOf(error));
  process.exitCode = 1;
}
