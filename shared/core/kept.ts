import type { Kept } from './contract.ts';

/** Goes up with every change of the form; other versions are not read. */
const FORMAT_VERSION = 1;

/**
 * What is kept of a result, as text, for stores that keep bytes. JSON's escapes carry any string of
 * JavaScript's, half a surrogate pair and NUL included, through UTF-8 unharmed.
 */
export function encodeKept(kept: Kept): string {
  return JSON.stringify({ v: FORMAT_VERSION, response: kept });
}

/** @returns undefined for what is no such text, or of another version. */
export function decodeKept(text: string): Kept {
  try {
    const { v, response } = JSON.parse(text) as { v: unknown; response: Kept };
    return v === FORMAT_VERSION ? response : undefined;
  } catch {
    return undefined;
  }
}
