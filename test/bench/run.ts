/**
 * `npm run bench -- SUITE… [--json] [--quick]`: measures on servers of its own. Progress goes to
 * standard error; with --json the last thing on standard output is one object, `{"purge": {…}}`.
 * `--quick` is for trying a bench out: its figures mean little.
 */
import { parseArgs } from 'node:util';
import { print, printError } from '../../infra/local/output.ts';

/** Ratios and seconds, and what they should be. */
export interface Outcome {
  readonly figures: Readonly<Record<string, number>>;
  readonly goals: Readonly<Record<string, Goal>>;
}

export type Goal = { readonly atLeast: number } | { readonly atMost: number };

export interface BenchRun {
  readonly isQuick: boolean;
  progress(line: string): void;
}

/** One suite's outcomes, each by its name. */
type Bench = (run: BenchRun) => Promise<Readonly<Record<string, Outcome>>>;

/** Each suite is a file beside this one, which exports `bench`. */
const suites: Readonly<Record<string, () => Promise<Bench>>> = {
  claims: async () => (await import('./claims.ts')).bench,
  replays: async () => (await import('./replays.ts')).bench,
  cold: async () => (await import('./cold.ts')).bench,
  soak: async () => (await import('./soak.ts')).bench,
  purge: async () => (await import('./purge.ts')).bench,
  records: async () => (await import('./records.ts')).bench,
  sizes: async () => (await import('./sizes.ts')).bench,
};

const usage = `usage: npm run bench -- ${Object.keys(suites).join('|')} [--json] [--quick]`;

function wishes(): { names: string[]; json: boolean; quick: boolean } | undefined {
  try {
    const { positionals, values } = parseArgs({
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        quick: { type: 'boolean', default: false },
      },
    });
    const areKnown = positionals.every((name) => Object.hasOwn(suites, name));
    return areKnown && positionals.length > 0 ? { names: positionals, ...values } : undefined;
  } catch {
    return undefined;
  }
}

function asText(name: string, { figures, goals }: Outcome): string {
  const lines = Object.entries(figures).map(([figure, value]) => {
    const goal = goals[figure];
    return `  ${figure.padEnd(28)}${String(value).padStart(10)}${goal ? verdict(value, goal) : ''}`;
  });
  return [name, ...lines].join('\n');
}

function verdict(value: number, goal: Goal): string {
  const isMet = 'atLeast' in goal ? value >= goal.atLeast : value <= goal.atMost;
  const bound = 'atLeast' in goal ? `at least ${goal.atLeast}` : `at most ${goal.atMost}`;
  return `   ${isMet ? 'ok' : 'MISSED'}, ${bound}`;
}

async function main(): Promise<number> {
  const wished = wishes();
  if (wished === undefined) {
    printError(usage);
    return 2;
  }
  const figures: Record<string, Outcome['figures']> = {};
  for (const name of wished.names) {
    const bench = await suites[name]?.();
    const outcomes = await bench?.({ isQuick: wished.quick, progress: printError });
    for (const [title, outcome] of Object.entries(outcomes ?? {})) {
      figures[title] = outcome.figures;
      if (!wished.json) print(asText(title, outcome));
    }
  }
  if (wished.json) print(JSON.stringify(figures));
  return 0;
}

process.exitCode = await main();
