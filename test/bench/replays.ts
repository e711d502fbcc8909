/** Replays: the second time that a client sends a request whose answer was lost. */
import { closeAll, compare, openEach, warmUp } from './compare.ts';
import { rounded } from './postgres.ts';
import type { BenchRun, Outcome } from './run.ts';
import { type BenchServers, type Environment, openBenchServers } from './servers.ts';

const COUNTED_REPLAYS = 1000;

export async function bench(run: BenchRun): Promise<Record<'replays', Outcome>> {
  const servers = await openBenchServers();
  try {
    const contestants = await openEach(run.isQuick ? 1 : 3, {
      backstop: () => servers.environment('backstop'),
      powertoolsRedis: () => servers.environment('powertools-redis'),
    });
    await warmUp(servers, contestants, run.isQuick ? 50 : 2000);
    const postgresQueries = await countQueries(servers, contestants.backstop[0] as Environment);
    const { backstop, powertoolsRedis } = await compare(servers, contestants, {
      roundTripMs: 1,
      rounds: run.isQuick ? 1 : 7,
      requests: run.isQuick ? 50 : 150,
      areReplays: true,
    });
    await closeAll(contestants);
    run.progress(
      `replays, 1 ms round trip: backstop ${rounded(backstop.ms)} ms, powertools-redis ${rounded(powertoolsRedis.ms)} ms`,
    );
    return {
      replays: {
        figures: {
          // One at a time, so that the rates are to each other as the times are, turned round.
          ratio_powertools_redis: rounded(powertoolsRedis.ms / backstop.ms),
          postgres_queries: postgresQueries,
        },
        goals: { ratio_powertools_redis: { atLeast: 2 }, postgres_queries: { atMost: 0 } },
      },
    };
  } finally {
    await servers.close();
  }
}

async function countQueries(servers: BenchServers, environment: Environment): Promise<number> {
  const principal = await servers.newPlayer();
  const key = 'counted';
  await environment.run({ requests: 1, principal, key });
  await servers.proxy({ kind: 'count' });
  const { replays } = await environment.run({ requests: COUNTED_REPLAYS, principal, key });
  if (replays !== COUNTED_REPLAYS) throw new Error(`only ${replays} were replays`);
  return (await servers.proxy({ kind: 'count' })).chunks['DATABASE_URL'] ?? 0;
}
