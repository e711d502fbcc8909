import { hash } from 'node:crypto';

/** How many causes of an error are logged. */
const CAUSES_MAX = 4;

interface Loggable {
  readonly name: string;
  readonly message: string;
  readonly code?: string | number;
  readonly stack?: string;
  readonly cause?: Loggable;
}

/**
 * What may be logged of an error: its name, message, code and stack, and the same of its
 * causes. Never its other properties: drivers and middlewares hang bodies, rows and
 * credentials on their errors (`cause.data`, `detail`, `command.args`).
 */
export function loggable(error: unknown, causesMax = CAUSES_MAX): Loggable {
  if (typeof error !== 'object' || error === null) {
    return { name: typeof error, message: String(error) };
  }
  const { name, message, code, stack, cause } = error as Record<string, unknown>;
  const told = String(message ?? 'what was thrown is no Error');
  const safe = withoutQuote(told);
  return {
    name: typeof name === 'string' ? name : 'object',
    message: safe,
    ...((typeof code === 'string' || typeof code === 'number') && { code }),
    ...(typeof stack === 'string' && { stack: stack.replace(told, () => safe) }),
    ...(isErrorLike(cause) && causesMax > 0 && { cause: loggable(cause, causesMax - 1) }),
  };
}

/** A cause may be anything, a body too. */
function isErrorLike(cause: unknown): boolean {
  return typeof (cause as { message?: unknown } | null | undefined)?.message === 'string';
}

/** V8's message about a text that is no JSON quotes the text. */
function withoutQuote(message: string): string {
  return message.replace(/(?:\.\.\.)?"[\s\S]*"(?:\.\.\.)?(?= is not valid JSON)/, 'the text');
}

/** What may be logged of a key: enough to follow one request, not enough to send it again. */
export function shortHash(key: string): string {
  return hash('sha256', key).slice(0, 12);
}
