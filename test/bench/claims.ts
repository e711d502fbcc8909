/**
 * First requests: protected against unprotected, and against Powertools Idempotency, as
 * Lambda runs them: bundled as deployed, one request at a time in a process of its own.
 */
import { closeAll, compare, type Measured, openEach, warmUp } from './compare.ts';
import { median, rounded } from './postgres.ts';
import type { BenchRun, Outcome } from './run.ts';
import { type BenchServers, type Environment, openBenchServers } from './servers.ts';

export async function bench(run: BenchRun): Promise<Record<'claims' | 'degraded', Outcome>> {
  const servers = await openBenchServers();
  try {
    const claims = await measureClaims(servers, run);
    return { claims, degraded: await measureDegraded(servers, run) };
  } finally {
    await servers.close();
  }
}

/** Of one kind: no two processes are laid out alike. */
const ENVIRONMENTS = 3;

/** Machine code settles slowly where requests come one by one. */
const WARM_REQUESTS = 2000;

async function measureClaims(servers: BenchServers, run: BenchRun): Promise<Outcome> {
  const trips = await measureTimes(servers, run);
  return {
    figures: { ...trips, ...(await measureCpu(servers, run)) },
    goals: {
      roundtrips: { atMost: 4 },
      parallel_roundtrips: { atMost: 3 },
      ratio_naive_1ms: { atMost: 1.35 },
      parallel_ratio_naive_1ms: { atMost: 1.05 },
      ratio_powertools_redis_1ms: { atMost: 0.75 },
      cpu_ratio_powertools_redis: { atMost: 0.75 },
    },
  };
}

async function measureTimes(servers: BenchServers, run: BenchRun): Promise<Record<string, number>> {
  const contestants = await openEach(run.isQuick ? 1 : ENVIRONMENTS, {
    naive: () => servers.environment('naive'),
    backstop: () => servers.environment('backstop'),
    parallel: () => servers.environment('backstop', { BACKSTOP_CACHE_MODE: 'parallel' }),
    powertoolsRedis: () => servers.environment('powertools-redis'),
    powertoolsDynamodb: () => servers.environment('powertools-dynamodb'),
  });
  await warmUp(servers, contestants, run.isQuick ? 50 : WARM_REQUESTS);
  const roundtrips = await countRoundTrips(servers, contestants.backstop[0] as Environment);
  const parallelRoundtrips = await countRoundTrips(servers, contestants.parallel[0] as Environment);
  const at: Record<string, Record<keyof typeof contestants, Measured>> = {};
  for (const roundTripMs of [0, 1, 2]) {
    const measured = await compare(servers, contestants, {
      roundTripMs,
      rounds: run.isQuick ? 1 : 7,
      requests: run.isQuick ? 30 : 50,
    });
    at[roundTripMs] = measured;
    say(run, `claims, ${roundTripMs} ms round trip`, measured);
  }
  await closeAll(contestants);
  const ratio = (roundTripMs: number, one: keyof typeof contestants, other: typeof one) =>
    rounded((at[roundTripMs]?.[one].ms ?? Number.NaN) / (at[roundTripMs]?.[other].ms ?? 1));
  return {
    roundtrips,
    parallel_roundtrips: parallelRoundtrips,
    ratio_naive_0ms: ratio(0, 'backstop', 'naive'),
    ratio_naive_1ms: ratio(1, 'backstop', 'naive'),
    ratio_naive_2ms: ratio(2, 'backstop', 'naive'),
    parallel_ratio_naive_0ms: ratio(0, 'parallel', 'naive'),
    parallel_ratio_naive_1ms: ratio(1, 'parallel', 'naive'),
    parallel_ratio_naive_2ms: ratio(2, 'parallel', 'naive'),
    ratio_powertools_redis_1ms: ratio(1, 'backstop', 'powertoolsRedis'),
    ratio_powertools_dynamodb_1ms: ratio(1, 'backstop', 'powertoolsDynamodb'),
  };
}

/** Of the function's own process, on loopback: past the proxy, which cuts answers into pieces. */
async function measureCpu(servers: BenchServers, run: BenchRun): Promise<Record<string, number>> {
  const contestants = await openEach(run.isQuick ? 1 : ENVIRONMENTS, {
    naive: () => servers.environment('naive', servers.direct),
    backstop: () => servers.environment('backstop', servers.direct),
    powertoolsRedis: () => servers.environment('powertools-redis', servers.direct),
  });
  await warmUp(servers, contestants, run.isQuick ? 50 : WARM_REQUESTS);
  const measured = await compare(servers, contestants, {
    roundTripMs: 0,
    rounds: run.isQuick ? 1 : 9,
    requests: run.isQuick ? 30 : 200,
  });
  await closeAll(contestants);
  say(run, 'claims, loopback', measured);
  const { naive, backstop, powertoolsRedis } = measured;
  return {
    cpu_ratio_naive: rounded(backstop.cpuMs / naive.cpuMs),
    cpu_ratio_powertools_redis: rounded(backstop.cpuMs / powertoolsRedis.cpuMs),
  };
}

function say(run: BenchRun, what: string, measured: Readonly<Record<string, Measured>>): void {
  for (const [name, { ms, cpuMs }] of Object.entries(measured)) {
    run.progress(`${what}, ${name}: ${rounded(ms)} ms, ${rounded(cpuMs)} ms CPU`);
  }
}

/**
 * Of a first request, everything being connected. So slow a wire that
 * what is sent at once is on its way before the first of it is answered.
 */
async function countRoundTrips(servers: BenchServers, environment: Environment): Promise<number> {
  const principal = await servers.newPlayer();
  await servers.proxy({ kind: 'delay', roundTripMs: 20 });
  const counts: number[] = [];
  while (counts.length < 21) {
    await servers.proxy({ kind: 'count' });
    await environment.run({ requests: 1, principal });
    counts.push((await servers.proxy({ kind: 'count' })).roundTrips);
  }
  return median(counts);
}

/** Redis is dead, and known to be: the cool-down keeps requests from asking it. */
async function measureDegraded(servers: BenchServers, run: BenchRun): Promise<Outcome> {
  await servers.redis.stop();
  const contestants = await openEach(run.isQuick ? 1 : ENVIRONMENTS, {
    naive: () => servers.environment('naive'),
    backstop: () => servers.environment('backstop'),
  });
  await warmUp(servers, contestants, run.isQuick ? 50 : WARM_REQUESTS);
  const { naive, backstop } = await compare(servers, contestants, {
    roundTripMs: 1,
    rounds: run.isQuick ? 1 : 7,
    requests: run.isQuick ? 30 : 60,
  });
  await closeAll(contestants);
  await servers.redis.start();
  run.progress(
    `claims without Redis, 1 ms round trip: naive ${rounded(naive.ms)} ms, backstop ${rounded(backstop.ms)} ms`,
  );
  return {
    figures: { ratio_naive_1ms: rounded(backstop.ms / naive.ms) },
    goals: { ratio_naive_1ms: { atMost: 1.0 } },
  };
}
