import type { StoredResponse } from '../core/contract.ts';
import type { HttpResponse } from './problems.ts';
import { isAnswerHeader, isListHeader } from './response.ts';

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
    const lower = name.toLowerCase();
    if (isAnswerHeader(lower) && values.length > 0) {
      // Of the others a second value would be a contradiction: the response carries the first.
      stored[lower] = isListHeader(lower) ? values.join(', ') : String(values[0]);
    }
  }
  for (const [name, value] of Object.entries(response.headers ?? {})) {
    const lower = name.toLowerCase();
    if (isAnswerHeader(lower)) stored[lower] = String(value);
  }
  return stored;
}

/**
 * The response of a COMMIT. All that can fail has been judged before it (`toResponse`): here
 * only the expiry is filled in, which the store's clock has given.
 */
export function asFresh(response: HttpResponse, expiresAtMs: number | undefined): HttpResponse {
  return { ...response, headers: { ...response.headers, ...expiry(expiresAtMs) } };
}

export function asReplayed(stored: StoredResponse, expiresAtMs: number): HttpResponse {
  return {
    statusCode: stored.statusCode,
    headers: { ...stored.headers, ...expiry(expiresAtMs), 'idempotency-replayed': 'true' },
    body: stored.body,
    isBase64Encoded: stored.isBase64Encoded,
  };
}

function expiry(expiresAtMs: number | undefined) {
  if (expiresAtMs === undefined) return {};
  return { 'idempotency-expires': new Date(expiresAtMs).toUTCString() };
}
