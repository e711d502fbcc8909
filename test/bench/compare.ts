import { median } from './postgres.ts';
import type { BenchServers, Environment } from './servers.ts';

/** What is compared: processes of one kind, a few of each, since no two are laid out alike. */
export type Contestants = Readonly<Record<string, readonly Environment[]>>;

export interface Measured {
  /** The median of all its requests. */
  readonly ms: number;
  /** Per request: the median of the runs. */
  readonly cpuMs: number;
}

export interface Comparison {
  readonly roundTripMs: number;
  readonly rounds: number;
  /** By one environment in one round. */
  readonly requests: number;
  /** All with one key, which was used before: replays. */
  readonly areReplays?: boolean;
}

/** Connects what they connect to, and lets the machine code settle. */
export async function warmUp(
  servers: BenchServers,
  contestants: Contestants,
  requests: number,
): Promise<void> {
  await servers.proxy({ kind: 'delay', roundTripMs: 0 });
  const principal = await servers.newPlayer();
  for (const environment of Object.values(contestants).flat()) {
    await environment.run({ requests, principal });
  }
}

/** Side by side: each in its turn, round after round, with one request at a time. */
export async function compare<Names extends string>(
  servers: BenchServers,
  contestants: Readonly<Record<Names, readonly Environment[]>>,
  { roundTripMs, rounds, requests, areReplays = false }: Comparison,
): Promise<Record<Names, Measured>> {
  await servers.proxy({ kind: 'delay', roundTripMs });
  const names = Object.keys(contestants) as Names[];
  const tookMs = new Map<Names, number[]>(names.map((name) => [name, []]));
  const cpuMs = new Map<Names, number[]>(names.map((name) => [name, []]));
  const principals = new Map<Names, string>();
  for (const name of names) principals.set(name, await servers.newPlayer());
  for (let round = 0; round < rounds; round++) {
    for (const name of names) {
      for (const [index, environment] of contestants[name].entries()) {
        const principal = principals.get(name) as string;
        const key = areReplays ? `${name}-${roundTripMs}-${index}` : undefined;
        if (areReplays && round === 0) await environment.run({ requests: 1, principal, key });
        const answer = await environment.run({ requests, principal, key });
        tookMs.get(name)?.push(...answer.tookMs);
        cpuMs.get(name)?.push(answer.cpuMs / requests);
      }
    }
  }
  await servers.proxy({ kind: 'delay', roundTripMs: 0 });
  const measured = names.map((name): [Names, Measured] => [
    name,
    { ms: median(tookMs.get(name) ?? []), cpuMs: median(cpuMs.get(name) ?? []) },
  ]);
  return Object.fromEntries(measured) as Record<Names, Measured>;
}

/** `count` environments of each. */
export async function openEach<Names extends string>(
  count: number,
  open: Readonly<Record<Names, () => Promise<Environment>>>,
): Promise<Record<Names, readonly Environment[]>> {
  const opened = {} as Record<Names, Environment[]>;
  for (const name of Object.keys(open) as Names[]) {
    opened[name] = [];
    while (opened[name].length < count) opened[name].push(await open[name]());
  }
  return opened;
}

export async function closeAll(contestants: Contestants): Promise<void> {
  await Promise.all(
    Object.values(contestants)
      .flat()
      .map((environment) => environment.close()),
  );
}
