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

function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}
