/** The purge against the classic statement, against one big DELETE, and next to traffic. */
import type pg from 'pg';
import type { ExpiringTable } from '../../shared/postgres/purge/batch.ts';
import { markerTable } from '../../shared/postgres/purge/tables.ts';
import {
  type BenchPostgres,
  backendCpuSeconds,
  median,
  openBenchPostgres,
  rounded,
} from './postgres.ts';
import { measureClaims } from './purge-claims.ts';
import { measureSteadyState } from './purge-steady.ts';
import { countMarkers, createTemplate, deleteAll, deleteClassic, fill } from './purge-table.ts';
import { purgeAtFullSpeed } from './purge-worker.ts';
import type { BenchRun, Outcome } from './run.ts';

const KEEP_MS = 3_600_000;
const BATCH_ROWS = 10_000;

export async function bench(run: BenchRun): Promise<Record<'purge', Outcome>> {
  const postgres = await openBenchPostgres();
  try {
    const figures = {
      ...(await measureRates(postgres, run)),
      ...(await measurePinned(postgres, run)),
      ...(await measureSteadyState(postgres, run)),
      ...(await measureClaims(postgres, run)),
    };
    const goals = {
      cpu_ratio_1_worker: { atLeast: 2.8 },
      wall_ratio_4_workers: { atLeast: 3.2 },
      limit_ratio: { atLeast: 0.55 },
      pinned_last_over_first: { atMost: 1.2 },
      steady_lag_seconds_max: { atMost: 0.5 },
      claim_p50_ratio: { atMost: 1.3 },
    };
    return { purge: { figures, goals } };
  } finally {
    await postgres.close();
  }
}

interface Variant {
  readonly workers: number;
  run(client: pg.Client): Promise<number>;
}

const VARIANTS = {
  'classic 1': { workers: 1, run: (client) => deleteClassic(client, BATCH_ROWS) },
  'purge 1': { workers: 1, run: sweep },
  'classic 4': { workers: 4, run: (client) => deleteClassic(client, BATCH_ROWS) },
  'purge 2': { workers: 2, run: sweep },
  'purge 4': { workers: 4, run: sweep },
  'one big DELETE': { workers: 1, run: deleteAll },
} as const satisfies Record<string, Variant>;

type VariantName = keyof typeof VARIANTS;

/** As a scheduled worker does it, without its pauses. */
async function sweep(client: pg.Client): Promise<number> {
  return (await purgeAtFullSpeed(expiredMarkers(client), BATCH_ROWS)).rows;
}

function expiredMarkers(client: pg.Client): ExpiringTable {
  return markerTable(client, { retentionMs: KEEP_MS, marginMs: 0 });
}

interface Rate {
  readonly perSecond: number;
  readonly perCpuSecond: number;
}

async function measureRates(
  postgres: BenchPostgres,
  run: BenchRun,
): Promise<Record<string, number>> {
  const rows = run.isQuick ? 100_000 : 600_000;
  const rounds = run.isQuick ? 1 : 5;
  const admin = await postgres.connect();
  await createTemplate(admin, rows);
  const rates = new Map<VariantName, Rate[]>();
  for (let round = 1; round <= rounds; round++) {
    for (const name of Object.keys(VARIANTS) as VariantName[]) {
      await fill(admin);
      const rate = await measureRate(postgres, VARIANTS[name], rows);
      rates.set(name, [...(rates.get(name) ?? []), rate]);
      const { perSecond, perCpuSecond } = rate;
      run.progress(
        `round ${round}/${rounds}, ${name}: ${thousands(perSecond)} rows/s, ${thousands(perCpuSecond)} per CPU s`,
      );
      if ((await countMarkers(admin)) !== 0) throw new Error(`${name} left rows behind`);
    }
  }
  const all = (name: VariantName, part: keyof Rate) =>
    (rates.get(name) ?? []).map((rate) => rate[part]);
  // Round by round: the machine itself is now faster, now slower.
  const ratio = (part: keyof Rate, name: VariantName, to: VariantName) => {
    const others = all(to, part);
    return median(all(name, part).map((value, round) => value / (others[round] ?? Number.NaN)));
  };
  const toTheLimit = (['purge 1', 'purge 2', 'purge 4'] as const).map((name) =>
    ratio('perSecond', name, 'one big DELETE'),
  );
  return {
    cpu_ratio_1_worker: rounded(ratio('perCpuSecond', 'purge 1', 'classic 1')),
    wall_ratio_4_workers: rounded(ratio('perSecond', 'purge 4', 'classic 4')),
    limit_ratio: rounded(Math.max(...toTheLimit)),
    rows_per_second_1_worker: Math.round(median(all('purge 1', 'perSecond'))),
  };
}

async function measureRate(postgres: BenchPostgres, variant: Variant, rows: number): Promise<Rate> {
  const clients = await Promise.all(Array.from({ length: variant.workers }, postgres.connect));
  const cpuSeconds = () => clients.map(backendCpuSeconds).reduce((sum, one) => sum + one, 0);
  const cpuBefore = cpuSeconds();
  const startedMs = performance.now();
  const counts = await Promise.all(clients.map(variant.run));
  const seconds = (performance.now() - startedMs) / 1000;
  const cpu = cpuSeconds() - cpuBefore;
  await Promise.all(clients.map((client) => client.end()));
  const deleted = counts.reduce((sum, count) => sum + count, 0);
  if (deleted !== rows) throw new Error(`deleted ${deleted} of ${rows} rows`);
  return { perSecond: rows / seconds, perCpuSecond: rows / cpu };
}

/** An idle transaction elsewhere keeps every dead row: the last batch must not walk them all. */
async function measurePinned(
  postgres: BenchPostgres,
  run: BenchRun,
): Promise<Record<string, number>> {
  const rows = run.isQuick ? 200_000 : 1_000_000;
  const admin = await postgres.connect();
  const idle = await postgres.connect();
  await createTemplate(admin, rows);
  const ratios: number[] = [];
  for (let round = 1; round <= (run.isQuick ? 1 : 3); round++) {
    await fill(admin);
    await idle.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await idle.query('SELECT pg_current_xact_id()');
    const client = await postgres.connect();
    const { batches } = await purgeAtFullSpeed(expiredMarkers(client), BATCH_ROWS);
    await idle.query('ROLLBACK');
    await client.end();
    const fullMs = batches
      .filter(({ rows }) => rows > 0.99 * BATCH_ROWS)
      .map(({ seconds }) => seconds * 1000);
    const firstMs = median(fullMs.slice(0, 5));
    const lastMs = median(fullMs.slice(-5));
    ratios.push(lastMs / firstMs);
    run.progress(
      `pinned xmin, ${batches.length} batches: the first ${rounded(firstMs, 1)} ms, the last ${rounded(lastMs, 1)} ms`,
    );
  }
  return { pinned_last_over_first: rounded(median(ratios)) };
}

function thousands(value: number): string {
  return `${Math.round(value / 1000)}K`;
}
