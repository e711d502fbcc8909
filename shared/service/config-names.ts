/** Misspelt settings: what nobody reads would be thought to protect. */
import { ConfigError } from '../core/config-error.ts';

/** What begins so is a setting of one function. */
const PER_FUNCTION = ['BACKSTOP_KEY_MODE_', 'BACKSTOP_LEASE_MS_'];

/** @throws ConfigError that names each `BACKSTOP_*` of `given` that is not `known`, and the nearest that is. */
export function refuseUnknownNames(given: readonly string[], known: readonly string[]): void {
  const isKnown = (name: string) =>
    known.includes(name) || PER_FUNCTION.some((start) => name.startsWith(start) && name !== start);
  const unknown = given.filter((name) => name.startsWith('BACKSTOP_') && !isKnown(name));
  if (unknown.length === 0) return;
  const questions = unknown.map((name) => `${name} (did you mean ${nearest(name, known)}?)`);
  throw new ConfigError(
    `Nothing reads ${questions.join(', ')}: a misspelt setting keeps its default. Rename it, or take it out of the environment.`,
  );
}

function nearest(name: string, known: readonly string[]): string {
  const distances = known.map((each) => [distance(name, each), each] as const);
  return distances.sort(([a], [b]) => a - b)[0]?.[1] ?? '';
}

/** How many characters to insert, delete or replace (Levenshtein). */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [at, character] of [...from].entries()) {
    const above = row;
    row = [at + 1];
    for (let column = 1; column <= to.length; column++) {
      const replaced = (above[column - 1] ?? 0) + (character === to[column - 1] ? 0 : 1);
      row.push(Math.min(replaced, (above[column] ?? 0) + 1, (row[column - 1] ?? 0) + 1));
    }
  }
  return row[to.length] ?? 0;
}
