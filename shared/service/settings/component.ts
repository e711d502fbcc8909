/**
 * Settings as tables, one for each part of the service. From a row (row.ts) come the type of its
 * value, its check at start and its line in docs/settings.md.
 */
import { ConfigError } from '../../core/config-error.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

interface Readable<Value> {
  /** @throws ConfigError with a line for each value that cannot be: which, why, and what to set. */
  read(environment: Environment): Value;
}

/** What is read from a row or from a component. */
export type Settings<Part> = Part extends Readable<infer Value> ? Value : never;

/** The same of several, by name. */
export type SettingsOf<Parts> = { readonly [Name in keyof Parts]: Settings<Parts[Name]> };

/** A row: one variable of the environment. */
export interface Setting<Value> extends Readable<Value> {
  readonly name: string;
  readonly type: string;
  readonly unit?: string;
  /** What it is where it is not set. */
  readonly unset: string;
  /** What it decides, in a sentence. */
  readonly about: string;
  /** `{name}_{FUNCTION}` sets it for one function. */
  readonly isPerFunction?: true;
}

type Table = Readonly<Record<string, Setting<unknown>>>;

/** The settings of one part of the service. */
export interface Component<Rows extends Table, Value> extends Readable<Value> {
  readonly title: string;
  readonly rows: Rows;
}

export type AnyComponent = Component<Table, unknown>;

export function component<Rows extends Table>(
  title: string,
  rows: Rows,
): Component<Rows, SettingsOf<Rows>> {
  return { title, rows, read: (environment) => readAll(rows, environment) };
}

/** @param judge refuses what does not fit together, and returns the settings as the component takes them. */
export function judged<Rows extends Table, Value, Judged>(
  part: Component<Rows, Value>,
  judge: (value: Value) => Judged,
): Component<Rows, Judged> {
  return { ...part, read: (environment) => judge(part.read(environment)) };
}

/** @throws ConfigError for all of them together; what two of them refuse stands there once. */
export function readAll<Parts extends Record<string, Readable<unknown>>>(
  parts: Parts,
  environment: Environment,
): SettingsOf<Parts> {
  const refusals = new Set<string>();
  const values: Record<string, unknown> = {};
  for (const [name, part] of Object.entries(parts)) {
    try {
      values[name] = part.read(environment);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      for (const line of error.message.split('\n')) refusals.add(line);
    }
  }
  if (refusals.size > 0) throw new ConfigError([...refusals].join('\n'));
  return values as SettingsOf<Parts>;
}
