/**
 * `npm run purge -- [--until-drained] [--dry-run] [--workers N] [--rate-limit ROWS]`: for people, and
 * for a backlog of months. Does what the scheduled purge does, with the same parts of `shared/`, and may
 * run next to it. Ends with 0 only when nothing that has expired is left in any table.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual, parseArgs } from 'node:util';
import { ConfigError } from '../../shared/core/config-error.ts';
import { type Queryable, statementsOn } from '../../shared/postgres/pool.ts';
import { type PurgeRun, runPurge } from '../../shared/postgres/purge/run.ts';
import type { SweepPlan } from '../../shared/postgres/purge/sweep.ts';
import { listSweeps, type Retention, type Sweep } from '../../shared/postgres/purge/tables.ts';
import { noThrottle, throttleByRate } from '../../shared/postgres/purge/throttle.ts';
import { openPurgePool } from '../../shared/service/purge.ts';
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
const idleRunsMax = 30;
/** npm passes a terminal's Ctrl-C on to us, who have had it already: that is one signal, not two. */
const sameSignalMs = 500;

type Options = {
  untilDrained: boolean;
  dryRun: boolean;
  workers: number;
  /** Rows a second, all workers together. */
  rateLimit: number | undefined;
};

/** @throws ConfigError with the usage for words that are no such options. */
function parseOptions(): Options {
  try {
    const { values } = parseArgs({
      options: {
        'until-drained': { type: 'boolean', default: false },
        'dry-run': { type: 'boolean', default: false },
        workers: { type: 'string', default: '1' },
        'rate-limit': { type: 'string' },
      },
    });
    const limit = values['rate-limit'];
    return {
      untilDrained: values['until-drained'],
      dryRun: values['dry-run'],
      workers: wholeNumber(values.workers, workersMax),
      rateLimit: limit === undefined ? undefined : wholeNumber(limit),
    };
  } catch {
    throw new ConfigError(usage);
  }
}

function wholeNumber(word: string, most = Number.MAX_SAFE_INTEGER): number {
  const number = /^\d+$/.test(word) ? Number(word) : 0;
  if (number < 1 || number > most) throw new RangeError(word);
  return number;
}

async function findDatabaseUrl(env: Environment): Promise<string> {
  const given = env['PURGE_DATABASE_URL'] || env['DATABASE_URL'];
  if (given) return given;
  const instance = await runningInstance();
  if (instance?.purgeDatabaseUrl === undefined) throw new ConfigError(hint);
  // One role for everything: it is the developer's own server.
  if (instance.purgeDatabaseUrl !== instance.adminDatabaseUrl) forgetPostgresVariables();
  return instance.purgeDatabaseUrl;
}

async function main(): Promise<number> {
  const options = parseOptions();
  const env = environment();
  const url = await findDatabaseUrl(env);
  const { purge: settings } = readSettings('purge', { ...env, DATABASE_URL: url });
  return purge(settings, options);
}

async function purge(settings: PurgeSettings, options: Options): Promise<number> {
  // An idle connection that breaks is no news: the next statement says so.
  const pool = openPurgePool(settings, options.workers, () => {});
  try {
    const db = statementsOn(pool);
    const { retentions, sweeps } = await listSweeps(db, settings);
    printRetentions(retentions, settings.marginMs);
    const expired = await printBacklog(db, sweeps);
    // Nobody can say what was promised, or nobody answers.
    if (retentions.length === 0) return 1;
    if (options.dryRun) {
      print(`dry run: ${about(expired.rows)} rows would be deleted`);
      return expired.rows === 0 && expired.isWhole ? 0 : 1;
    }
    const progress = showProgress(expired.rows);
    const stop = abortOnSignal();
    const plan = planOf(options, settings.batchRowsMax, progress, stop);
    const run = () => runPurge(pool, settings, plan);
    const last = await (options.untilDrained ? runUntilDrained(run, stop) : run()).finally(
      progress.stop,
    );
    // Each run reads them anew.
    const newer = last.result.retentions;
    if (!isDeepStrictEqual(newer, retentions)) printRetentions(newer, settings.marginMs);
    return printOutcome(last, progress);
  } finally {
    await pool.end();
  }
}

function printRetentions(retentions: readonly Retention[], marginMs: number): void {
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

/** What has expired by now. What cannot be measured is printed, and does not stop the rest. */
async function printBacklog(db: Queryable, sweeps: readonly Sweep[]) {
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

function planOf(
  { untilDrained, workers, rateLimit }: Options,
  rowsMax: number,
  progress: Progress,
  stop: AbortSignal,
): SweepPlan {
  const endMonotonicMs = untilDrained ? Number.POSITIVE_INFINITY : performance.now() + oneRunMs;
  const throttle = rateLimit === undefined ? noThrottle : throttleByRate(rateLimit);
  const batchRows = (rateLimit ?? Number.POSITIVE_INFINITY) / workers / batchesPerSecond;
  return {
    concurrency: workers,
    batchRowsMax: Math.min(rowsMax, Math.max(1, Math.floor(batchRows))),
    createThrottle: () => throttle,
    remainingMs: () => (stop.aborted ? 0 : endMonotonicMs - performance.now()),
    onBatch: progress.add,
  };
}

/** Again and again while somebody holds what is left, or the database is away: either may pass. */
async function runUntilDrained(
  run: () => Promise<PurgeRun>,
  signal: AbortSignal,
): Promise<PurgeRun> {
  for (let idleRuns = 0; ; ) {
    const last = await run();
    idleRuns = last.result.rows > 0 ? 0 : idleRuns + 1;
    if (last.result.drained || idleRuns === idleRunsMax) return last;
    await sleep(retryMs, undefined, { signal }).catch(() => {});
    if (signal.aborted) return last;
  }
}

function printOutcome({ result, errors }: PurgeRun, progress: Progress): number {
  const { drained, leftRows } = result;
  const left = leftRows === null ? 'what is left could not be counted' : `${about(leftRows)} left`;
  print(`${progress.summary()}${drained ? '' : `; ${left}`}`);
  for (const { sweep, error } of errors) printError(`${sweep}: ${messageOf(error)}`);
  if (drained) return 0;
  print('run it again to go on: what is deleted is deleted, and nothing is half done');
  return 1;
}

/** After the first signal the current batch is the last. A second one ends at once, which is safe too. */
function abortOnSignal(): AbortSignal {
  const controller = new AbortController();
  let firstMs = Number.POSITIVE_INFINITY;
  const onSignal = () => {
    if (performance.now() - firstMs > sameSignalMs) process.exit(1);
    firstMs = Math.min(firstMs, performance.now());
    controller.abort();
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, onSignal);
  return controller.signal;
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
  process.exitCode = error instanceof ConfigError ? 2 : 1;
}
