/** HTTP's side of the core: what a work may return, and what of it is kept and replayed. */
import { type Codec, type Kept, TOMBSTONE } from '../core/contract.ts';
import {
  type HttpResponse,
  isFailure,
  isFinalStatus,
  isRefusal,
  type Problem,
} from './problems.ts';
import { isAnswerHeader, isCarriedText, isListHeader, toResponse } from './response.ts';

/** What is kept of a response. */
export interface KeptResponse {
  readonly statusCode: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly isBase64Encoded: boolean;
}

export interface HttpCodecOptions {
  /** Larger bodies are not kept: a retry gets ALREADY_EXISTS. */
  readonly storedBodyBytesMax: number;
  readonly problemBaseUrl?: string | undefined;
}

export type HttpCodec = Codec<HttpResponse | Problem, HttpResponse>;

export function httpCodec({ storedBodyBytesMax, problemBaseUrl }: HttpCodecOptions): HttpCodec {
  return {
    accept: (returned) => toResponse(returned, problemBaseUrl),
    isRefusal: ({ statusCode }) => isRefusal(statusCode),
    isFailure: ({ statusCode }) => isFailure(statusCode),
    encode: (response) => keptOf(response, storedBodyBytesMax),
    decode: (kept) => {
      if (!isKeptResponse(kept)) return undefined;
      const { statusCode, headers, body, isBase64Encoded } = kept;
      return { statusCode, headers: { ...headers }, body, isBase64Encoded };
    },
  };
}

/** The part of `response` that a replay repeats. */
function keptOf(response: HttpResponse, bodyBytesMax: number): KeptResponse | typeof TOMBSTONE {
  const body = response.body ?? '';
  if (Buffer.byteLength(body) > bodyBytesMax) return TOMBSTONE;
  return {
    statusCode: response.statusCode,
    headers: keptHeaders(response),
    body,
    isBase64Encoded: response.isBase64Encoded ?? false,
  };
}

function keptHeaders(response: HttpResponse): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, values] of Object.entries(response.multiValueHeaders ?? {})) {
    const lower = name.toLowerCase();
    if (isAnswerHeader(lower) && values.length > 0) {
      // Of the others a second value would be a contradiction: the response carries the first.
      kept[lower] = isListHeader(lower) ? values.join(', ') : String(values[0]);
    }
  }
  for (const [name, value] of Object.entries(response.headers ?? {})) {
    const lower = name.toLowerCase();
    if (isAnswerHeader(lower)) kept[lower] = String(value);
  }
  return kept;
}

/**
 * Judged like a response that is about to be kept: whoever can write to the store could
 * otherwise set a cookie with an answer of ours.
 */
function isKeptResponse(kept: Kept): kept is KeptResponse {
  const { statusCode, headers, body, isBase64Encoded } = (kept ?? {}) as Record<string, unknown>;
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

/**
 * The response of a COMMIT. All that can fail has been judged before it (`accept`): here
 * only the expiry is filled in, which the store's clock has given.
 */
export function asFresh(response: HttpResponse, expiresAtMs: number | undefined): HttpResponse {
  return { ...response, headers: { ...response.headers, ...expiry(expiresAtMs) } };
}

export function asReplayed(response: HttpResponse, expiresAtMs: number): HttpResponse {
  const headers = { ...response.headers, ...expiry(expiresAtMs), 'idempotency-replayed': 'true' };
  return { ...response, headers };
}

function expiry(expiresAtMs: number | undefined) {
  if (expiresAtMs === undefined) return {};
  return { 'idempotency-expires': new Date(expiresAtMs).toUTCString() };
}
