import { Problem } from './problems.ts';
import { type HttpRequest, trimmed } from './request.ts';

export const KEY_HEADER = 'Idempotency-Key';

/** Longer keys would overrun the marker's index entry (54000 from 6,400 characters on). */
const KEY_LENGTH_MAX = 255;

/**
 * The request's idempotency key, or undefined when it carries none.
 *
 * The header is an RFC 9651 string (`"abc"`) or the bare token (`abc`): the same
 * key. A proxy may join repeated headers with commas, so a key holds no comma,
 * and the same value twice is one value.
 *
 * @throws Problem KEY_MALFORMED for everything else, an empty value included: a
 * client that sends the header means to be protected.
 */
export function readKey(request: HttpRequest): string | undefined {
  const values = request.header(KEY_HEADER).flatMap((value) => value.split(','));
  if (values.length === 0) return undefined;
  const keys = new Set(values.map((value) => unquote(trimmed(value))));
  if (keys.size > 1) throw malformed('the request carries two different values');
  const [key] = [...keys] as [string];
  if (key === '') throw malformed('its value is empty');
  if (key.length > KEY_LENGTH_MAX) throw malformed(`it has more than ${KEY_LENGTH_MAX} characters`);
  if (!/^[\x21-\x7e]+$/.test(key)) throw malformed('it has characters that are not visible ASCII');
  return key;
}

/** RFC 9651, section 4.2.5: only `"` and `\` are escaped. */
function unquote(value: string): string {
  if (!value.startsWith('"')) return value;
  const quoted = /^"((?:[^"\\]|\\["\\])*)"$/.exec(value);
  if (!quoted) throw malformed('its quotes are not a string of RFC 9651');
  return (quoted[1] as string).replace(/\\(["\\])/g, '$1');
}

function malformed(why: string): Problem {
  return new Problem(
    'KEY_MALFORMED',
    `${KEY_HEADER} cannot be used: ${why}. Send 1 to ${KEY_LENGTH_MAX} visible ASCII characters without a comma, for example a UUID.`,
  );
}
