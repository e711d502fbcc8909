import { type HttpResponse, Problem, problemResponse } from '../http/problems.ts';
import type { StoredResponse } from './contract.ts';

/**
 * Headers that belong to the answer and not to the one exchange that carried it.
 * `Set-Cookie`, `Content-Length`, `Transfer-Encoding` and request ids must never
 * be replayed; with a list of what is allowed, nor is anything not thought of.
 */
const STORED_HEADERS = new Set([
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

/** The part of `response` that a replay repeats, or a tombstone when its body is over the cap. */
export function toStored(
  response: HttpResponse,
  bodyBytesMax: number,
): StoredResponse | 'tombstone' {
  const body = response.body ?? '';
  if (Buffer.byteLength(body) > bodyBytesMax) return 'tombstone';
  return {
    statusCode: response.statusCode,
    headers: storedHeaders(response),
    body,
    isBase64Encoded: response.isBase64Encoded ?? false,
  };
}

function storedHeaders(response: HttpResponse): Record<string, string> {
  const stored: Record<string, string> = {};
  for (const [name, values] of Object.entries(response.multiValueHeaders ?? {})) {
    // Only Link is a list; of the others a second value would be a contradiction.
    const lower = name.toLowerCase();
    if (STORED_HEADERS.has(lower) && values.length > 0) {
      stored[lower] = lower === 'link' ? values.join(', ') : String(values[0]);
    }
  }
  for (const [name, value] of Object.entries(response.headers ?? {})) {
    const lower = name.toLowerCase();
    // A header without a value was not sent the first time either.
    if (STORED_HEADERS.has(lower) && value != null) stored[lower] = String(value);
  }
  return stored;
}

/**
 * What the work returned, as the response that it stands for.
 *
 * @throws TypeError when it is not one that could be sent and stored.
 */
export function toResponse(
  returned: HttpResponse | Problem,
  problemBaseUrl?: string,
): HttpResponse {
  if (returned instanceof Problem) return problemResponse(returned, problemBaseUrl);
  const { statusCode, body } = (returned ?? {}) as { statusCode?: unknown; body?: unknown };
  const isStatus =
    Number.isInteger(statusCode) && Number(statusCode) >= 100 && Number(statusCode) < 600;
  if (!isStatus) {
    throw new TypeError('once: the work must return { statusCode, headers?, body? } or a Problem');
  }
  if (body !== undefined && typeof body !== 'string') {
    throw new TypeError(
      'once: the body must be a string (base64 for bytes): a stream cannot be replayed',
    );
  }
  return returned;
}

/** A fresh response with what the contract adds to it, and free of what only replays say. */
export function asFresh(response: HttpResponse, expiresAtMs: number | undefined): HttpResponse {
  const { headers = {}, multiValueHeaders } = response;
  return {
    ...response,
    headers: contractHeaders(headers, expiresAtMs),
    ...(multiValueHeaders && { multiValueHeaders: withoutOurs(multiValueHeaders) }),
  };
}

export function asReplayed(stored: StoredResponse, expiresAtMs: number): HttpResponse {
  return {
    statusCode: stored.statusCode,
    headers: { ...contractHeaders(stored.headers, expiresAtMs), 'idempotency-replayed': 'true' },
    body: stored.body,
    isBase64Encoded: stored.isBase64Encoded,
  };
}

function contractHeaders(
  headers: Readonly<Record<string, string | number | boolean>>,
  expiresAtMs: number | undefined,
) {
  return {
    ...withoutOurs(headers),
    ...(expiresAtMs !== undefined && {
      'idempotency-expires': new Date(expiresAtMs).toUTCString(),
    }),
  };
}

/** Only the contract says these. */
function withoutOurs<T>(headers: Readonly<Record<string, T>>): Record<string, T> {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => !/^idempotency-(?:replayed|expires)$/i.test(name)),
  );
}
