/** Cold starts: what is deployed, and how long it takes to load. */
import { sizeKb } from './bundle.ts';
import { median, rounded } from './postgres.ts';
import type { BenchRun, Outcome } from './run.ts';
import { type BenchServers, openBenchServers } from './servers.ts';

export async function bench(run: BenchRun): Promise<Record<'cold', Outcome>> {
  const servers = await openBenchServers();
  try {
    const [backstop, naive] = await measureImports(servers, run.isQuick ? 3 : 25);
    run.progress(`import: backstop ${rounded(backstop)} ms, naive ${rounded(naive)} ms`);
    return {
      cold: {
        figures: {
          bundle_kb: rounded(sizeKb(servers.bundles.backstop), 0),
          naive_bundle_kb: rounded(sizeKb(servers.bundles.naive), 0),
          import_ratio_naive: rounded(backstop / naive),
        },
        goals: { bundle_kb: { atMost: 700 }, import_ratio_naive: { atMost: 1.5 } },
      },
    };
  } finally {
    await servers.close();
  }
}

async function measureImports(servers: BenchServers, rounds: number): Promise<[number, number]> {
  const variants = ['backstop', 'naive'] as const;
  const tookMs = { backstop: [] as number[], naive: [] as number[] };
  for (let round = 0; round < rounds; round++) {
    for (const variant of variants) {
      const environment = await servers.environment(variant);
      tookMs[variant].push(environment.importMs);
      await environment.close();
    }
  }
  return [median(tookMs.backstop), median(tookMs.naive)];
}
