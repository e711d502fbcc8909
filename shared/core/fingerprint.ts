import { hash } from 'node:crypto';

/** Goes up with every change of what is hashed: other versions are never compared. */
export const FINGERPRINT_VERSION = 1;

/** Deeper than any body we take, and far from where recursion would overflow. */
const JSON_DEPTH_MAX = 64;

/** The JSON is nested deeper than any that is hashed. */
export class JsonTooDeepError extends Error {
  override name = 'JsonTooDeepError';
}

/**
 * SHA-256 over everything that makes this request this request: each part with its length before
 * it, so that nothing can slide from one part into the next.
 *
 * @param body text (canonical JSON), or the bytes of anything else.
 * @returns the version, a colon, and 43 characters of base64url.
 */
export function fingerprintOf(parts: readonly string[], body: string | Buffer): string {
  const text = `${String.fromCharCode(FINGERPRINT_VERSION)}${parts.map(measured).join('')}`;
  const hashed =
    typeof body === 'string'
      ? text + measured(body)
      : Buffer.concat([Buffer.from(`${text}${body.length}:`), body]);
  return `${FINGERPRINT_VERSION}:${hash('sha256', hashed, 'base64url')}`;
}

function measured(part: string): string {
  return `${Buffer.byteLength(part)}:${part}`;
}

/** Fingerprints of different versions cannot be compared. */
export function areComparable(one: string, other: string): boolean {
  return one.split(':', 1)[0] === other.split(':', 1)[0];
}

/**
 * The one spelling of a JSON text's meaning, or undefined when it is not JSON.
 * Members are sorted by UTF-16 code unit; `__proto__` is a member like others;
 * of a repeated member the last counts, as for JSON.parse. Numbers count as they are spelled: 2^53 + 1
 * is not 2^53, and a money amount of `1.0` is not silently `1`.
 *
 * @throws JsonTooDeepError beyond 64 levels.
 */
export function canonicalJson(text: string): string | undefined {
  if (isTooDeep(text)) {
    throw new JsonTooDeepError(`The body is nested deeper than ${JSON_DEPTH_MAX} levels.`);
  }
  try {
    if (isCanonical(text)) return text;
    return spell(JSON.parse(text, keepNumberSource as (key: string, value: unknown) => unknown));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/**
 * Most clients spell JSON as JSON.stringify does, and the few members of a request often
 * stand in order: then the text is its own canonical spelling, at a fifth of the cost.
 *
 * @throws SyntaxError
 */
function isCanonical(text: string): boolean {
  const value: unknown = JSON.parse(text);
  return isInOrder(value) && JSON.stringify(value) === text;
}

function isInOrder(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true;
  if (Array.isArray(value)) return value.every(isInOrder);
  const names = Object.keys(value);
  return (
    names.every((name, at) => at === 0 || (names[at - 1] as string) < name) &&
    Object.values(value).every(isInOrder)
  );
}

class NumberSource {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

function keepNumberSource(_key: string, value: unknown, context: { source: string }): unknown {
  return typeof value === 'number' ? new NumberSource(context.source) : value;
}

function spell(value: unknown): string {
  if (value instanceof NumberSource) return value.text;
  if (Array.isArray(value)) return `[${value.map(spell).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const members = value as Record<string, unknown>;
    const names = Object.keys(members).sort();
    return `{${names.map((name) => `${JSON.stringify(name)}:${spell(members[name])}`).join(',')}}`;
  }
  return JSON.stringify(value);
}

/** Counts brackets outside strings; cheap, and it cannot itself run out of stack. */
function isTooDeep(text: string): boolean {
  if (text.length <= JSON_DEPTH_MAX) return false;
  let depth = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (inString) {
      if (char === 0x5c) i++;
      else if (char === 0x22) inString = false;
    } else if (char === 0x22) inString = true;
    else if (char === 0x7b || char === 0x5b) {
      if (++depth > JSON_DEPTH_MAX) return true;
    } else if (char === 0x7d || char === 0x5d) depth--;
  }
  return false;
}
