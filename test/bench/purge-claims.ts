import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type BenchPostgres, median, rounded } from './postgres.ts';
import { createTemplate, fill } from './purge-table.ts';
import { purgeThrottled } from './purge-worker.ts';
import type { BenchRun } from './run.ts';

const KEEP_MS = 3_600_000;
/** As long as a scheduled worker has. */
const INVOCATION_MS = 53_000;

/** How long a claim takes, alone and while a worker purges a backlog as it throttles itself. */
export async function measureClaims(
  postgres: BenchPostgres,
  run: BenchRun,
): Promise<Record<string, number>> {
  const admin = await postgres.connect();
  const worker = await postgres.connect();
  const claimer = new pg.Client({
    connectionString: postgres.url,
    pipeline: true,
  } as pg.ClientConfig);
  await claimer.connect();
  await createTemplate(admin, run.isQuick ? 200_000 : 1_000_000);
  const ratios: number[] = [];
  const rounds = run.isQuick ? 1 : 3;
  for (let round = 1; round <= rounds; round++) {
    await fill(admin);
    const endMs = performance.now() + (run.isQuick ? 1000 : 3000);
    const alone = await claimWhile(claimer, () => performance.now() < endMs);
    let isPurging = true;
    const purging = purgeThrottled(worker, KEEP_MS, INVOCATION_MS).finally(() => {
      isPurging = false;
    });
    const during = await claimWhile(claimer, () => isPurging);
    const purgedRows = await purging;
    ratios.push(median(during) / median(alone));
    run.progress(
      `round ${round}/${rounds}, claims: ${rounded(median(alone))} ms alone (${alone.length}), ${rounded(median(during))} ms while ${purgedRows} rows were purged (${during.length})`,
    );
  }
  await claimer.end();
  return { claim_p50_ratio: rounded(median(ratios)) };
}

/** The milliseconds of each claim; a new one every other millisecond or so. */
async function claimWhile(client: pg.Client, isOn: () => boolean): Promise<number[]> {
  const tookMs: number[] = [];
  while (isOn()) {
    const startedMs = performance.now();
    await Promise.all([
      client.query('BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE DEFERRABLE'),
      client.query(`SELECT claim_marker($1, $2, clock_timestamp() + interval '10 s')`, [
        'bench',
        randomUUID(),
      ]),
      client.query('COMMIT'),
    ]);
    tookMs.push(performance.now() - startedMs);
    await sleep(1);
  }
  return tookMs;
}
