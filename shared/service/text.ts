import * as z from 'zod/mini';

/**
 * Text that every store can keep: Postgres refuses NUL, and half a surrogate pair
 * has no UTF-8.
 */
export function storableText(lengthMax: number) {
  return z
    .string()
    .check(
      z.minLength(1),
      z.maxLength(lengthMax),
      z.refine(isStorable, 'has characters that cannot be stored'),
    );
}

/**
 * The last part of a path, decoded: what `{id}` stands for in `/things/{id}`. Undefined where it
 * is no percent-encoding, or text that no store can hold and so none can find.
 */
export function lastSegment(path: string): string | undefined {
  try {
    const text = decodeURIComponent(path.slice(path.lastIndexOf('/') + 1));
    return isStorable(text) ? text : undefined;
  } catch {
    return undefined;
  }
}

function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}
