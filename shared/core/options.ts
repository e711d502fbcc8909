/** Judges options when something is made, so that a wrong one fails the start and no request. */

/** What is wrong with a value, as the rest of a sentence that begins with its name; undefined: nothing. */
export type Judge = (value: unknown) => string | undefined;

/** @throws TypeError that names every option that cannot be, and what to pass. */
export function judgeOptions(
  what: string,
  options: unknown,
  judges: Readonly<Record<string, Judge>>,
): void {
  if (typeof options !== 'object' || options === null) {
    throw new TypeError(`${what}: options must be an object; it was given ${shown(options)}`);
  }
  const known = Object.keys(judges);
  const unknown = Object.keys(options).filter((name) => !known.includes(name));
  const faults = [
    ...(unknown.length > 0
      ? [`there is no ${unknown.join(', ')}; the options are ${known.join(', ')}`]
      : []),
    ...Object.entries(judges).flatMap(([name, judge]) => {
      const fault = judge((options as Record<string, unknown>)[name]);
      return fault === undefined ? [] : [`${name} ${fault}`];
    }),
  ];
  if (faults.length > 0) throw new TypeError(`${what}: ${faults.join('; ')}`);
}

export const optional =
  (judge: Judge): Judge =>
  (value) =>
    value === undefined ? undefined : judge(value);

export const aPositiveNumber: Judge = (value) =>
  typeof value === 'number' && Number.isFinite(value) && value > 0
    ? undefined
    : `must be a number above 0, and was given ${shown(value)}`;

export const aString: Judge = (value) =>
  typeof value === 'string' ? undefined : `must be a string, and was given ${shown(value)}`;

export const aFunction: Judge = (value) =>
  typeof value === 'function' ? undefined : `must be a function, and was given ${shown(value)}`;

export const aBoolean: Judge = (value) =>
  typeof value === 'boolean' ? undefined : `must be true or false, and was given ${shown(value)}`;

export const oneOf =
  (...values: readonly string[]): Judge =>
  (value) =>
    values.includes(value as string)
      ? undefined
      : `must be ${values.map((value) => `'${value}'`).join(' or ')}, and was given ${typeof value === 'string' ? JSON.stringify(value.slice(0, 40)) : shown(value)}`;

export const stringsByName: Judge = (value) =>
  typeof value === 'object' &&
  value !== null &&
  Object.values(value).every((each) => typeof each === 'string')
    ? undefined
    : `must be an object of strings, and was given ${shown(value)}`;

/** An object that has these methods; `hint` says where to get one. */
export const having =
  (methods: readonly string[], hint: string): Judge =>
  (value) => {
    if (typeof (value as { then?: unknown } | undefined)?.then === 'function') {
      return `was given a Promise: await it first (${hint})`;
    }
    const missing = methods.filter(
      (name) => typeof (value as Record<string, unknown> | undefined | null)?.[name] !== 'function',
    );
    if (missing.length === 0) return undefined;
    return `must have the methods ${methods.join(', ')}, and was given ${shown(value)} without ${missing.join(', ')} (${hint})`;
  };

/** Of what kind a value is, and never a text: it may hold a password. */
function shown(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (typeof value !== 'object') return `a ${typeof value}`;
  const { name } = (Object.getPrototypeOf(value) as object | null)?.constructor ?? {};
  return name === undefined || name === 'Object' ? 'an object' : `a ${name}`;
}
