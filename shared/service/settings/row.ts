/** The kinds of rows. */
import { ConfigError } from '../../core/config-error.ts';
import type { Environment, Setting } from './component.ts';

/** What `parse` makes of the text; undefined where it is not set. */
export function parsed<Value>(
  name: string,
  type: string,
  about: string,
  parse: (text: string, name: string, environment: Environment) => Value,
): Setting<Value | undefined> {
  const read = (environment: Environment) => {
    const text = environment[name];
    // An empty variable is how many tools spell an absent one.
    return text ? parse(text, name, environment) : undefined;
  };
  return { name, type, unset: 'none', about, read };
}

export const text = (name: string, about: string): Setting<string | undefined> =>
  parsed(name, 'text', about, (text) => text);

/** @param check throws a ConfigError that shows nothing of the URL: it may hold a password. */
export function url(
  name: string,
  check: (name: string, text: string, environment: Environment) => void,
  about: string,
): Setting<string | undefined> {
  return parsed(name, 'URL', about, (text, _name, environment) => {
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

export const count = (name: string, usual: number, unit: string, about: string): Setting<number> =>
  withDefault(wholeNumber(name, usual, unit, about), usual);

export const ms = (name: string, usual: number, about: string): Setting<number> =>
  count(name, usual, 'ms', about);

/** One of `values`; the first where it is not set. */
export function choice<const Value extends string>(
  name: string,
  values: readonly [Value, ...Value[]],
  about: string,
): Setting<Value> {
  const quoted = (quote: string) => values.map((value) => quote + value + quote).join(' or ');
  const setting = parsed(name, quoted('`'), about, (text) => {
    const chosen = values.find((value) => value === text);
    if (chosen !== undefined) return chosen;
    throw refused(name, text, `set it to ${quoted('"')}, or leave it out`);
  });
  return withDefault(setting, values[0]);
}

export const withDefault = <Value>(
  setting: Setting<Value | undefined>,
  value: Value,
  unset = `\`${value}\``,
): Setting<Value> => otherwise(setting, unset, () => value);

/** What `other` is, where it is not set itself. */
export const orElse = <Value>(
  setting: Setting<Value | undefined>,
  other: Setting<Value>,
): Setting<Value> => otherwise(setting, `that of \`${other.name}\``, other.read);

/** @param why says what it is for, and what to set. */
export const needed = <Value>(setting: Setting<Value | undefined>, why: string): Setting<Value> =>
  otherwise(setting, 'must be set', () => {
    throw new ConfigError(`${setting.name} is not set: ${why}`);
  });

function otherwise<Value>(
  setting: Setting<Value | undefined>,
  unset: string,
  readOther: (environment: Environment) => Value,
): Setting<Value> {
  const read = (environment: Environment) => setting.read(environment) ?? readOther(environment);
  return { ...setting, unset, read };
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
  const what = mayBeShown ? `is ${JSON.stringify(text)}` : 'cannot be used';
  return new ConfigError(`${name} ${what}: ${why}`);
}
