/**
 * What a response may be, judged whole before it counts: after COMMIT nothing may fail. And
 * which of its headers belong to the answer, and which to the one exchange that carries it.
 */
import { type HttpResponse, isFinalStatus, Problem, problemResponse } from './problems.ts';

/**
 * Headers that belong to the answer and not to the one exchange that carried it.
 * `Set-Cookie`, `Content-Length`, `Transfer-Encoding` and request ids must never
 * be replayed; with a list of what is allowed, nor is anything not thought of.
 */
const ANSWER_HEADERS: ReadonlySet<string> = new Set([
  'cache-control',
  'content-disposition',
  'content-encoding',
  'content-language',
  'content-location',
  'content-type',
  'etag',
  'last-modified',
  'link',
  'location',
]);

/** Those of them that are lists (RFC 9110, section 5.6.1). */
const LIST_HEADERS: ReadonlySet<string> = new Set([
  'cache-control',
  'content-encoding',
  'content-language',
  'link',
]);

export function isAnswerHeader(lowerName: string): boolean {
  return ANSWER_HEADERS.has(lowerName);
}

export function isListHeader(lowerName: string): boolean {
  return LIST_HEADERS.has(lowerName);
}

/**
 * Lambda sends no response of more than 6 MB, as JSON; some of it is left for the headers
 * that come later: the contract's own, cors, tracing.
 */
export const RESPONSE_BYTES_MAX = 6 * 1024 * 1024 - 16 * 1024;

/**
 * What the work returned, as the response that it stands for: a copy in plain data, with
 * nothing in it that HTTP or Lambda could not carry, and without the reserved headers.
 *
 * @throws TypeError when it is not one that could be sent and stored.
 */
export function toResponse(
  returned: HttpResponse | Problem,
  problemBaseUrl?: string,
): HttpResponse {
  const given = returned instanceof Problem ? problemResponse(returned, problemBaseUrl) : returned;
  const { statusCode, headers, multiValueHeaders, cookies, body, isBase64Encoded, ...rest } =
    (given ?? {}) as Record<keyof HttpResponse, unknown>;
  if (!isFinalStatus(statusCode)) {
    refuse(
      'the work must return { statusCode, headers?, body? } or a Problem; its status is a whole number of 200 at the least and three digits',
    );
  }
  if (body !== undefined && typeof body !== 'string') {
    refuse(
      'the body must be a string: JSON.stringify a value, and send bytes as base64 with isBase64Encoded: true; a stream cannot be replayed',
    );
  }
  if (isBase64Encoded !== undefined && typeof isBase64Encoded !== 'boolean') {
    refuse('isBase64Encoded must be true or false');
  }
  if (cookies !== undefined) judgeValues('cookies', cookies);
  const response = {
    ...(Object.keys(rest).length > 0 && (JSON.parse(asJson(rest)) as object)),
    statusCode,
    ...(headers !== undefined && { headers: singleHeaders(headers) }),
    ...(multiValueHeaders !== undefined && {
      multiValueHeaders: multiHeaders(multiValueHeaders, headers),
    }),
    ...(cookies !== undefined && { cookies: [...(cookies as string[])] }),
    ...(body !== undefined && { body }),
    ...(isBase64Encoded !== undefined && { isBase64Encoded }),
  } as HttpResponse;
  judgeSize(response);
  return response;
}

function judgeSize(response: HttpResponse): void {
  const bytes = Buffer.byteLength(asJson(response));
  if (bytes > RESPONSE_BYTES_MAX) {
    refuse(
      `the response has ${bytes} bytes as JSON, and Lambda sends 6 MB at most (${RESPONSE_BYTES_MAX} without the headers that are still to come): answer with less, or with a Location`,
    );
  }
}

/** @throws TypeError for what JSON cannot carry: a BigInt, a cycle. */
function asJson(value: object): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    return refuse(`the response must be what JSON can carry (${firstLine(error)})`);
  }
}

function firstLine(error: unknown): string {
  return String((error as Error).message).split('\n', 1)[0] as string;
}

function singleHeaders(headers: unknown): Record<string, string | number | boolean> {
  const entries = namedEntries('headers', headers).filter(([name, value]) => {
    // A header without a value is not sent.
    if (value === undefined || value === null) return false;
    judgeValue(`the header ${name}`, value);
    return !isOurs(name);
  });
  return Object.fromEntries(entries) as Record<string, string | number | boolean>;
}

/** Without a second value of what a replay sends once: the first answer is like the others. */
function multiHeaders(headers: unknown, single: unknown) {
  const elsewhere = new Set(
    Object.entries(single ?? {})
      .filter(([, value]) => value !== undefined && value !== null)
      .map(([name]) => name.toLowerCase()),
  );
  const entries = namedEntries('multiValueHeaders', headers).flatMap(([name, values]) => {
    const lower = name.toLowerCase();
    judgeValues(`the header ${name} in multiValueHeaders`, values);
    if (isOurs(name) || (isAnswerHeader(lower) && elsewhere.has(lower))) return [];
    const isSingle = isAnswerHeader(lower) && !isListHeader(lower);
    const kept = isSingle ? (values as string[]).slice(0, 1) : [...(values as string[])];
    return [[name, kept] as const];
  });
  return Object.fromEntries(entries);
}

/** RFC 9110, section 5.6.2. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

function namedEntries(what: string, headers: unknown): [string, unknown][] {
  const isPlain = typeof headers === 'object' && headers !== null && !(Symbol.iterator in headers);
  if (!isPlain) {
    refuse(
      `${what} must be a plain object of names and values, or left out; Object.fromEntries makes one of a list, a Map or Headers`,
    );
  }
  const entries = Object.entries(headers as object);
  for (const [name] of entries) {
    if (!TOKEN.test(name)) refuse(`${JSON.stringify(name)} in ${what} is no name of a header`);
  }
  return entries;
}

function judgeValues(what: string, values: unknown): void {
  if (!Array.isArray(values)) refuse(`${what}: must be a list of values`);
  for (const value of values as unknown[]) judgeValue(what, value);
}

function judgeValue(what: string, value: unknown): void {
  if (!isCarried(value)) {
    refuse(
      `${what}: the value must be a finite number, true, false, or text without line breaks, control characters and characters above U+00FF (encodeURIComponent)`,
    );
  }
}

function isCarried(value: unknown): boolean {
  return typeof value === 'boolean' || Number.isFinite(value) || isCarriedText(value);
}

/** Text as a header of HTTP carries it (RFC 9110, section 5.5). */
export function isCarriedText(value: unknown): boolean {
  return typeof value === 'string' && /^[\t\x20-\x7e\x80-\xff]*$/.test(value);
}

/** Reserved headers: the library alone sets them. */
function isOurs(name: string): boolean {
  return /^idempotency-(?:replayed|expires)$/i.test(name);
}

/**
 * `response`, as a copy, with the headers that others have put on `other`: hooks that ran before
 * ours (cors) belong to the exchange, whatever becomes of the answer they were put on. What HTTP
 * cannot carry is left out: nothing may fail any more.
 */
export function withHeadersOf(other: unknown, response: HttpResponse): HttpResponse {
  return withAdded(other, response, isOfExchange);
}

/** The same where `other` is `response`, handed on: whatever was added to it stays, cookies too. */
export function withAdditionsOf(other: unknown, response: HttpResponse): HttpResponse {
  const { cookies } = (other ?? {}) as { cookies?: unknown };
  const isWhole = Array.isArray(cookies) && cookies.every(isCarriedText);
  const answer = withAdded(other, response, (name) => !isOurs(name));
  return isWhole ? { ...answer, cookies: [...cookies] } : answer;
}

function withAdded(
  other: unknown,
  response: HttpResponse,
  isKept: (lowerName: string) => boolean,
): HttpResponse {
  const { headers, multiValueHeaders, cookies } = response;
  const own = new Set(
    [headers, multiValueHeaders]
      .flatMap((each) => Object.keys(each ?? {}))
      .map((name) => name.toLowerCase()),
  );
  const added = (from: unknown, isCarriedValue: (value: unknown) => boolean) =>
    Object.entries(typeof from === 'object' && from !== null ? from : {}).filter(
      ([name, value]) =>
        !own.has(name.toLowerCase()) &&
        isKept(name.toLowerCase()) &&
        TOKEN.test(name) &&
        isCarriedValue(value),
    );
  const given = (other ?? {}) as { headers?: unknown; multiValueHeaders?: unknown };
  const multi = [
    ...added(given.multiValueHeaders, (values) => Array.isArray(values) && values.every(isCarried)),
    ...Object.entries(multiValueHeaders ?? {}),
  ].map(([name, values]): [string, string[]] => [name, [...(values as string[])]]);
  return {
    ...response,
    headers: { ...Object.fromEntries(added(given.headers, isCarried)), ...headers },
    ...(multi.length > 0 && { multiValueHeaders: Object.fromEntries(multi) }),
    ...(cookies && { cookies: [...cookies] }),
  };
}

/** A session's cookie was meant for the answer that is replaced, like its length. */
const NOT_OF_EXCHANGE: ReadonlySet<string> = new Set([
  'content-length',
  'transfer-encoding',
  'retry-after',
  'set-cookie',
]);

function isOfExchange(lowerName: string): boolean {
  return !isAnswerHeader(lowerName) && !NOT_OF_EXCHANGE.has(lowerName) && !isOurs(lowerName);
}

function refuse(what: string): never {
  throw new TypeError(`once: ${what}`);
}
