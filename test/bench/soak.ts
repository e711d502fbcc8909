/** Memory over a long life: an environment that handles 100,000 requests. */

import { median, rounded } from './postgres.ts';
import type { BenchRun, Outcome } from './run.ts';
import { openBenchServers } from './servers.ts';

export async function bench(run: BenchRun): Promise<Record<'soak', Outcome>> {
  const servers = await openBenchServers();
  try {
    const requests = run.isQuick ? 5000 : 100_000;
    const environment = await servers.environment('backstop');
    const principal = await servers.newPlayer();
    const { rssMb } = await environment.run({ requests, principal, rssEvery: requests / 100 });
    await environment.close();
    // The first tenth is the warm-up: modules load, pools fill, code is compiled.
    const early = median(rssMb.slice(10, 20));
    const late = median(rssMb.slice(90));
    run.progress(
      `soak: ${requests} requests, resident ${rounded(early, 0)} MB early, ${rounded(late, 0)} MB late, ${rounded(Math.max(...rssMb), 0)} MB at most`,
    );
    return {
      soak: {
        figures: { requests, rss_growth_mb: rounded(late - early, 1) },
        goals: { rss_growth_mb: { atMost: 20 } },
      },
    };
  } finally {
    await servers.close();
  }
}
