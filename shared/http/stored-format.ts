import type { StoredResponse } from '../core/contract.ts';
import { isFailure, isFinalStatus } from './problems.ts';
import { isAnswerHeader, isCarriedText } from './response.ts';

/** Goes up with every change of the form; other versions are not read. */
const FORMAT_VERSION = 1;

type Kept = StoredResponse | 'tombstone';

/**
 * A response as text, for stores that keep bytes. JSON's escapes carry any string of
 * JavaScript's, half a surrogate pair and NUL included, through UTF-8 unharmed.
 */
export function encodeStored(response: Kept): string {
  return JSON.stringify({ v: FORMAT_VERSION, response });
}

/** @returns undefined for what is no such text, or of another version. */
export function decodeStored(text: string): Kept | undefined {
  try {
    const { v, response } = JSON.parse(text) as { v: unknown; response: unknown };
    return v === FORMAT_VERSION && isKept(response) ? response : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Judged like a response that is about to be stored: whoever can write to the store could
 * otherwise set a cookie with an answer of ours.
 */
export function isKept(response: unknown): response is Kept {
  if (response === 'tombstone') return true;
  const { statusCode, headers, body, isBase64Encoded } = (response ?? {}) as Record<
    string,
    unknown
  >;
  return (
    isFinalStatus(statusCode) &&
    !isFailure(statusCode) &&
    typeof body === 'string' &&
    typeof isBase64Encoded === 'boolean' &&
    typeof headers === 'object' &&
    headers !== null &&
    !Array.isArray(headers) &&
    Object.entries(headers).every(([name, value]) => isAnswerHeader(name) && isCarriedText(value))
  );
}
