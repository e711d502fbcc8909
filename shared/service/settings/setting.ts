/**
 * Settings as tables. From one row come the type of its value, its check at start and its line
 * in docs/settings.md.
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
  /** Where it is not set: the default, or what that means. */
  readonly unset: string;
  /** What it decides, in a sentence. */
  readonly about: string;
  /** `{name}_{FUNCTION}` sets it for one function. */
  readonly isPerFunction?: true;
}

/** The settings of one part of the service. */
export interface Component<Value> extends Readable<Value> {
  readonly title: string;
  readonly rows: readonly Setting<unknown>[];
}

export function component<Table extends Record<string, Setting<unknown>>>(
  title: string,
  table: Table,
): Component<SettingsOf<Table>> {
  return { title, rows: Object.values(table), read: (environment) => readAll(table, environment) };
}

/** @param judge refuses what does not fit together, and returns the settings as the component takes them. */
export function judged<Value, Judged>(
  part: Component<Value>,
  judge: (value: Value) => Judged,
): Component<Judged> {
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

/** What `parse` makes of the text; undefined where it is not set. */
export function parsed<Value>(
  name: string,
  type: string,
  about: string,
  parse: (text: string, environment: Environment) => Value,
): Setting<Value | undefined> {
  const read = (environment: Environment) => {
    // An empty variable is how many tools spell an absent one.
    const text = environment[name] || undefined;
    return text === undefined ? undefined : parse(text, environment);
  };
  return { name, type, unset: 'none', about, read };
}

export const text = (name: string, about: string): Setting<string | undefined> =>
  parsed(name, 'text', about, (text) => text);

/** @param check throws a ConfigError that shows nothing of the URL: it may hold a password. */
export function url(
  name: string,
  about: string,
  check: (name: string, text: string, environment: Environment) => void,
): Setting<string | undefined> {
  return parsed(name, 'URL', about, (text, environment) => {
    check(name, text, environment);
    return text;
  });
}

/** @param usual is what a refusal says to set. */
export function wholeNumber(
  name: string,
  usual: number,
  unit: string,
  about: string,
): Setting<number | undefined> {
  const why = `it must be a whole number above 0; set it to ${usual}, or leave it out`;
  const setting = parsed(name, 'whole number', about, (text) => {
    const number = Number(text);
    if (Number.isSafeInteger(number) && number > 0) return number;
    throw refused(name, text, why);
  });
  return { ...setting, unit };
}

export const number = (name: string, usual: number, unit: string, about: string): Setting<number> =>
  withDefault(wholeNumber(name, usual, unit, about), usual);

/** One of `values`; the first where it is not set. */
export function choice<const Value extends string>(
  name: string,
  values: readonly [Value, ...Value[]],
  about: string,
): Setting<Value> {
  const quoted = (quote: string) => values.map((value) => quote + value + quote).join(' or ');
  const parse = (text: string) => {
    const chosen = values.find((value) => value === text);
    if (chosen !== undefined) return chosen;
    throw refused(name, text, `set it to ${quoted('"')}, or leave it out`);
  };
  return withDefault(parsed(name, quoted('`'), about, parse), values[0]);
}

export function withDefault<Value>(
  setting: Setting<Value | undefined>,
  value: Value,
  unset = `\`${value}\``,
): Setting<Value> {
  return { ...setting, unset, read: (environment) => setting.read(environment) ?? value };
}

/** @param why says what it is for, and what to set. */
export function needed<Value>(setting: Setting<Value | undefined>, why: string): Setting<Value> {
  const read = (environment: Environment) => {
    const value = setting.read(environment);
    if (value === undefined) throw new ConfigError(`${setting.name} is not set: ${why}`);
    return value;
  };
  return { ...setting, unset: 'must be set', read };
}

/** What `other` is, where it is not set itself. */
export function orElse<Value>(
  setting: Setting<Value | undefined>,
  other: Setting<Value>,
): Setting<Value> {
  const read = (environment: Environment) => setting.read(environment) ?? other.read(environment);
  return { ...setting, unset: `that of \`${other.name}\``, read };
}

/** A value, and which variable it is from. */
export interface Named<Value> {
  readonly name: string;
  readonly value: Value;
}

/** One function's own value, judged when its route is made, else that of all. */
export function perFunction<Value>(
  name: string,
  create: (name: string) => Setting<Value>,
): Setting<(functionName: string) => Named<Value>> {
  const ofAll = create(name);
  const read = (environment: Environment) => {
    const value = ofAll.read(environment);
    return (functionName: string) => {
      const own = `${name}_${functionName.toUpperCase().replaceAll('-', '_')}`;
      return environment[own]
        ? { name: own, value: create(own).read(environment) }
        : { name, value };
    };
  };
  return { ...ofAll, read, isPerFunction: true };
}

/** A value that cannot be: shown, unless somebody may have put a password there. */
export function refused(name: string, text: string, why: string): ConfigError {
  const mayBeShown = name.startsWith('BACKSTOP_') && !name.endsWith('_AUTH');
  return new ConfigError(
    `${name} ${mayBeShown ? `is ${JSON.stringify(text)}` : 'cannot be used'}: ${why}`,
  );
}
