/**
 * First requests: protected against unprotected, and against Powertools Idempotency, as
 * Lambda runs them: bundled as deployed, one request at a time in a process of its own.
 */
import { closeAll, compare, type Measured, openPairs, warmUp } from './compare.ts';
import { type Environment, type Lab, openLab } from './lab.ts';
import type { BenchRun, Outcome } from './run.ts';
import { rounded } from './stage.ts';

export async function bench(run: BenchRun): Promise<Record<'claims' | 'degraded', Outcome>> {
  const lab = await openLab();
  try {
    const claims = await measureClaims(lab, run);
    return { claims, degraded: await measureDegraded(lab, run) };
  } finally {
    await lab.close();
  }
}

async function measureClaims(lab: Lab, run: BenchRun): Promise<Outcome> {
  const contestants = await openPairs({
    naive: () => lab.environment('naive'),
    backstop: () => lab.environment('backstop'),
    parallel: () => lab.environment('backstop', { BACKSTOP_FAST_PATH: 'parallel' }),
    powertoolsRedis: () => lab.environment('powertools-redis'),
    powertoolsDynamodb: () => lab.environment('powertools-dynamodb'),
  });
  await warmUp(lab, contestants, run.isQuick ? 50 : 500);
  const roundtrips = await countRoundTrips(lab, contestants.backstop[0] as Environment);
  const parallelRoundtrips = await countRoundTrips(lab, contestants.parallel[0] as Environment);
  const at: Record<string, Record<keyof typeof contestants, Measured>> = {};
  for (const roundTripMs of [0, 1, 2]) {
    const measured = await compare(lab, contestants, {
      roundTripMs,
      rounds: run.isQuick ? 1 : 7,
      requests: run.isQuick ? 30 : 60,
    });
    at[roundTripMs] = measured;
    for (const [name, { ms, cpuMs }] of Object.entries(measured)) {
      run.progress(
        `claims, ${roundTripMs} ms round trip, ${name}: ${rounded(ms)} ms, ${rounded(cpuMs)} ms CPU`,
      );
    }
  }
  await closeAll(contestants);
  const ratio = (roundTripMs: number, one: keyof typeof contestants, other: typeof one) =>
    rounded((at[roundTripMs]?.[one].ms ?? Number.NaN) / (at[roundTripMs]?.[other].ms ?? 1));
  const cpu = (other: keyof typeof contestants) =>
    rounded((at[0]?.backstop.cpuMs ?? Number.NaN) / (at[0]?.[other].cpuMs ?? 1));
  return {
    figures: {
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
      cpu_ratio_naive: cpu('naive'),
      cpu_ratio_powertools_redis: cpu('powertoolsRedis'),
    },
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

/**
 * Of the slowest of some first requests, everything being connected. So slow a wire that
 * what is sent at once is on its way before the first of it is answered.
 */
async function countRoundTrips(lab: Lab, environment: Environment): Promise<number> {
  const principal = await lab.newPlayer();
  await lab.proxy({ kind: 'delay', roundTripMs: 20 });
  let most = 0;
  for (let count = 0; count < 20; count++) {
    await lab.proxy({ kind: 'count' });
    await environment.run({ requests: 1, principal });
    most = Math.max(most, (await lab.proxy({ kind: 'count' })).roundTrips);
  }
  return most;
}

/** Redis is dead, and known to be: the cool-down keeps requests from asking it. */
async function measureDegraded(lab: Lab, run: BenchRun): Promise<Outcome> {
  await lab.redis.stop();
  const contestants = await openPairs({
    naive: () => lab.environment('naive'),
    backstop: () => lab.environment('backstop'),
  });
  await warmUp(lab, contestants, run.isQuick ? 50 : 500);
  const { naive, backstop } = await compare(lab, contestants, {
    roundTripMs: 1,
    rounds: run.isQuick ? 1 : 7,
    requests: run.isQuick ? 30 : 60,
  });
  await closeAll(contestants);
  await lab.redis.start();
  run.progress(
    `claims without Redis, 1 ms round trip: naive ${rounded(naive.ms)} ms, backstop ${rounded(backstop.ms)} ms`,
  );
  return {
    figures: { ratio_naive_1ms: rounded(backstop.ms / naive.ms) },
    goals: { ratio_naive_1ms: { atMost: 1.0 } },
  };
}
