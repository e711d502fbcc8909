import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { type BenchPostgres, backendCpuSeconds, rounded } from './postgres.ts';
import { purgeThrottled } from './purge-worker.ts';
import type { BenchRun } from './run.ts';

const ROWS_PER_SECOND = 20_000;
const KEEP_MS = 5000;
/** As long as a scheduled worker has. */
const INVOCATION_MS = 50_000;

/**
 * Rows come in at 20,000 a second, live for five seconds and go. The worker runs in a loop, at the
 * pace that it would have on its schedule; how long ago did the oldest row that is there expire?
 */
export async function measureSteadyState(
  postgres: BenchPostgres,
  run: BenchRun,
): Promise<Record<string, number>> {
  const seconds = run.isQuick ? 5 : 30;
  const [admin, inserter, worker, watcher] = await Promise.all([
    postgres.connect(),
    postgres.connect(),
    postgres.connect(),
    postgres.connect(),
  ]);
  await admin.query('TRUNCATE player_mutation_idempotency');
  const endMs = performance.now() + KEEP_MS + seconds * 1000;
  const isOn = () => performance.now() < endMs;
  const cpuBefore = backendCpuSeconds(worker);
  const [inserted, purged, lagSeconds] = await Promise.all([
    insertSteadily(inserter, isOn),
    purgeInALoop(worker, isOn),
    watchLag(watcher, isOn),
  ]);
  const cpu = (backendCpuSeconds(worker) - cpuBefore) / (seconds + KEEP_MS / 1000);
  run.progress(
    `steady: ${inserted} rows inserted in ${seconds + KEEP_MS / 1000} s, ${purged} purged with ${rounded(cpu * 100, 1)}% of a core, oldest expired row ${rounded(lagSeconds, 3)} s at most`,
  );
  return {
    steady_lag_seconds_max: rounded(lagSeconds, 3),
    steady_rows_inserted: inserted,
    steady_seconds: seconds + KEEP_MS / 1000,
  };
}

/** In bulk, one statement for every 20 ms: one row at a time would be the bench's own limit. */
async function insertSteadily(client: pg.Client, isOn: () => boolean): Promise<number> {
  const startedMs = performance.now();
  let inserted = 0;
  while (isOn()) {
    const due = Math.floor(((performance.now() - startedMs) / 1000) * ROWS_PER_SECOND);
    await client.query(
      `INSERT INTO player_mutation_idempotency
       SELECT 'user-' || n % 5000, gen_random_uuid()::text, clock_timestamp()
         FROM generate_series(1, $1::int) n`,
      [due - inserted],
    );
    inserted = due;
    await sleep(20);
  }
  return inserted;
}

async function purgeInALoop(client: pg.Client, isOn: () => boolean): Promise<number> {
  let purged = 0;
  while (isOn()) {
    purged += await purgeThrottled(client, KEEP_MS, INVOCATION_MS);
    await sleep(50);
  }
  return purged;
}

async function watchLag(client: pg.Client, isOn: () => boolean): Promise<number> {
  let most = 0;
  while (isOn()) {
    const { rows } = await client.query<{ age: number | null }>(
      `SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS age
         FROM player_mutation_idempotency`,
    );
    most = Math.max(most, (rows[0]?.age ?? 0) - KEEP_MS / 1000);
    await sleep(50);
  }
  return most;
}
