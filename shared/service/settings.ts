/**
 * What each root reads of the environment, and the only place that reads `process.env`. All
 * settings are listed in docs/settings.md.
 */
import { ConfigError } from '../core/config-error.ts';
import {
  type AnyComponent,
  type Environment,
  readAll,
  type Setting,
  type SettingsOf,
} from './settings/component.ts';
import { DYNAMODB } from './settings/dynamodb.ts';
import { DATABASE, MARKERS, MIGRATION, PURGE, RECORDS } from './settings/postgres.ts';
import { REDIS } from './settings/redis.ts';
import { REQUESTS, SERVICE } from './settings/requests.ts';

/** A root reads its own components, and asks for nothing of the others. */
export const ROOTS = {
  postgres: {
    service: SERVICE,
    requests: REQUESTS,
    database: DATABASE,
    markers: MARKERS,
    records: RECORDS,
    redis: REDIS,
  },
  dynamodb: { service: SERVICE, requests: REQUESTS, dynamodb: DYNAMODB, redis: REDIS },
  purge: { service: SERVICE, purge: PURGE },
  migration: { migration: MIGRATION },
} as const satisfies Record<string, Record<string, AnyComponent>>;

export type SettingsFor<Root extends keyof typeof ROOTS> = SettingsOf<(typeof ROOTS)[Root]>;

/** For whoever has no other: nobody else reads `process.env`. */
export const processEnvironment = (): Environment => process.env;

/** @throws ConfigError that names every value that cannot be, and every `BACKSTOP_*` that no root reads. */
export function readSettings<Root extends keyof typeof ROOTS>(
  root: Root,
  environment: Environment,
): SettingsFor<Root> {
  refuseUnknownNames(environment);
  return readAll(ROOTS[root], environment);
}

/** Every component once, in the order of the roots. */
export const COMPONENTS: ReadonlySet<AnyComponent> = new Set(
  Object.values(ROOTS).flatMap((root) => Object.values<AnyComponent>(root)),
);

/** Misspelt settings: what nobody reads would be thought to protect. */
function refuseUnknownNames(environment: Environment): void {
  const rows = [...COMPONENTS].flatMap((component) => Object.values(component.rows));
  const unknown = Object.keys(environment).filter(
    (name) =>
      name.startsWith('BACKSTOP_') && environment[name] && !rows.some((row) => isOf(row, name)),
  );
  if (unknown.length === 0) return;
  const questions = unknown.map((name) => `${name} (did you mean ${nearest(name, rows)}?)`);
  throw new ConfigError(
    `Nothing reads ${questions.join(', ')}: a misspelt setting keeps its default. Rename it, or take it out of the environment; docs/settings.md lists all.`,
  );
}

/** The name of a function, as a variable has it. */
const FUNCTION_NAME = /^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*$/;

function isOf({ name, isPerFunction }: Setting<unknown>, given: string): boolean {
  if (given === name) return true;
  return (
    isPerFunction === true &&
    given.startsWith(`${name}_`) &&
    FUNCTION_NAME.test(given.slice(name.length + 1))
  );
}

function nearest(given: string, rows: readonly Setting<unknown>[]): string {
  // A function's name as its route has it: its own setting, rather than that of all.
  const spelt = given
    .toUpperCase()
    .replaceAll(/[^A-Z0-9]+/g, '_')
    .replace(/_$/, '');
  if (rows.some((row) => isOf(row, spelt))) return spelt;
  const distances = rows.map(({ name }) => [distance(given, name), name] as const);
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
