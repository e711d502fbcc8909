/**
 * `npm run purge -- [--until-drained] [--dry-run] [--workers N] [--rate-limit ROWS]`: for people, and
 * for a backlog of months. Does what the scheduled purge does, and may run next to it. Ends with 0 only
 * when nothing that has expired is left.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { type Config, ConfigError, loadConfig } from '../../shared/config.ts';
import { statementsOn } from '../../shared/postgres/pool.ts';
import { type ExpiringTable, markerTable } from '../../shared/purge/expiring-table.ts';
import { measureBacklog } from '../../shared/purge/horizon.ts';
import { atFullSpeed, paceByRate } from '../../shared/purge/pace.ts';
import { sweepExpired } from '../../shared/purge/sweep.ts';
import { runningInstance } from './control-client.ts';
import { type Environment, environment } from './environment.ts';
import { complain, print } from './output.ts';
import { about, count, type Progress, showProgress } from './purge-progress.ts';

const usage =
  'usage: npm run purge -- [--until-drained] [--dry-run] [--workers N] [--rate-limit ROWS]';
const hint =
  'which database? Set PURGE_DATABASE_URL or DATABASE_URL, or start the local service with `npm start`';

/** Without --until-drained: as long as one scheduled run. */
const oneRunMs = 53_000;
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
  return given || (await runningInstance())?.purgeDatabaseUrl;
}

async function main(): Promise<number> {
  const wished = wishes();
  if (wished === undefined) return refuse(usage);
  const env = environment();
  const url = await findDatabaseUrl(env);
  if (url === undefined) return refuse(hint);
  let config: Config;
  try {
    // A Redis of the shell is none of its business, nor what that would need to be set.
    config = loadConfig({ ...env, DATABASE_URL: url, REDIS_URL: undefined });
  } catch (error) {
    if (error instanceof ConfigError) return refuse(error.message);
    throw error;
  }
  const pool = new pg.Pool({
    connectionString: url,
    max: wished.workers,
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
    application_name: 'backstop-purge',
  });
  // The connection may break between two statements as well; the next one then says so.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  try {
    const table = markerTable(statementsOn(pool), config.purgeRetentionMs + config.purgeMarginMs);
    return wished.dryRun
      ? await countOnly(pool, table)
      : await purge(table, wished, config.purgeBatchRowsMax);
  } finally {
    await pool.end();
  }
}

function refuse(message: string): number {
  complain(message);
  return 2;
}

/** In a transaction that could not delete if it wanted to, and may take its time. */
async function countOnly(pool: pg.Pool, { name, column, keepMs }: ExpiringTable): Promise<number> {
  const client = await pool.connect();
  try {
    await client.query('BEGIN READ ONLY');
    await client.query('SET LOCAL statement_timeout = 0');
    const { rows } = await client.query<{ count: string; oldest: string | null }>(
      `SELECT count(*), min(${column})::text AS oldest FROM ${name}
        WHERE ${column} < clock_timestamp() - $1::float8 * interval '1 millisecond'`,
      [keepMs],
    );
    await client.query('COMMIT');
    const found = Number(rows[0]?.count);
    const oldest = rows[0]?.oldest ? `, the oldest from ${rows[0].oldest}` : '';
    print(`dry run: ${count(found)} rows would be deleted${oldest}`);
    return found === 0 ? 0 : 1;
  } finally {
    client.release();
  }
}

async function purge(table: ExpiringTable, wished: Wishes, rowsMax: number): Promise<number> {
  const interrupted = interruption();
  const endMs = wished.untilDrained ? Number.POSITIVE_INFINITY : performance.now() + oneRunMs;
  const backlog = await measureBacklog(table);
  const progress = showProgress(backlog);
  let end: PassEnd;
  try {
    end = await runPasses(table, wished, rowsMax, {
      progress,
      remainingMs: () => (interrupted() ? 0 : endMs - performance.now()),
    });
  } finally {
    progress.stop();
  }
  print(`${progress.summary()}${end.leftRows === 0 ? '' : `; ${leftInWords(end)}`}`);
  if (end.leftRows === 0) return 0;
  if (end.error !== undefined) complain(`a worker failed: ${messageOf(end.error)}`);
  print('run it again to go on: what is deleted is deleted, and nothing is half done');
  return 1;
}

type PassEnd = { leftRows: number | undefined; error: unknown };

type Course = { progress: Progress; remainingMs: () => number };

async function runPasses(
  table: ExpiringTable,
  wished: Wishes,
  rowsMax: number,
  course: Course,
): Promise<PassEnd> {
  let end: PassEnd = { leftRows: undefined, error: undefined };
  for (let idlePasses = 0; idlePasses < idlePassesMax; ) {
    const rowsBefore = course.progress.rows();
    end = await runPass(table, wished, rowsMax, course).catch((error) => ({
      leftRows: undefined,
      error,
    }));
    if (end.leftRows === 0 || !wished.untilDrained) return end;
    idlePasses = course.progress.rows() > rowsBefore ? 0 : idlePasses + 1;
    // Somebody holds what is left, or the database is away: either may pass.
    const pauseEndMs = performance.now() + retryMs;
    while (performance.now() < pauseEndMs && course.remainingMs() > 0) await sleep(50);
    if (course.remainingMs() <= 0) return end;
  }
  return end;
}

async function runPass(
  table: ExpiringTable,
  { workers, rateLimit }: Wishes,
  rowsMax: number,
  { progress, remainingMs }: Course,
): Promise<PassEnd> {
  const perWorker = rateLimit === undefined ? undefined : rateLimit / workers;
  return sweepExpired({
    table,
    share: { worker: 0, workers: 1, loops: workers },
    batchRowsMax:
      perWorker === undefined
        ? rowsMax
        : Math.min(rowsMax, Math.max(1, Math.floor(perWorker / batchesPerSecond))),
    createPace: () => (perWorker === undefined ? atFullSpeed : paceByRate(perWorker)),
    remainingMs,
    onBatch: progress.add,
  });
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

function leftInWords({ leftRows }: PassEnd): string {
  return leftRows === undefined ? 'what is left could not be counted' : `${about(leftRows)} left`;
}

function messageOf(error: unknown): string {
  return error instanceof AggregateError
    ? error.errors.map(messageOf).join('; ')
    : (error as Error).message;
}

try {
  process.exitCode = await main();
} catch (error) {
  complain(messageOf(error));
  process.exitCode = 1;
}
