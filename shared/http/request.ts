import type { APIGatewayProxyEvent, APIGatewayProxyEventV2 } from 'aws-lambda';

/** An event of API Gateway: payload 2.0 (HTTP API) or 1.0 (REST API). */
export type HttpEvent = APIGatewayProxyEvent | APIGatewayProxyEventV2;

/** The one form in which the rest of the library sees a request. */
export interface HttpRequest {
  /** Upper case. */
  readonly method: string;
  readonly path: string;
  /** Method and route template (`POST /things/{id}`); the path itself where no route is named. */
  readonly endpoint: string;
  /**
   * What the `{names}` of the route stand for, as API Gateway hands them over (an HTTP API: decoded);
   * empty where the route has none.
   */
  readonly params: Readonly<Record<string, string>>;
  /** Name and value pairs, decoded, sorted by name; the values of one name keep their order. */
  readonly query: readonly (readonly [string, string])[];
  /** Every value that the request carried under `name` (any case), in order, without the space around it. */
  header(name: string): readonly string[];
  /** The body's bytes as the client sent them; empty when there was none. */
  readonly body: Buffer;
}

/** The event that a function was called with is no HTTP request: a queue's, a schedule's. */
export class NotHttpError extends TypeError {
  override name = 'NotHttpError';
}

/**
 * An answer to anything else would be taken for a success: SQS deletes a batch whose
 * function returned, whatever it returned.
 *
 * @throws NotHttpError
 */
export function assertHttp(event: unknown): void {
  const { httpMethod, rawPath, requestContext } = (
    typeof event === 'object' ? (event ?? {}) : {}
  ) as Record<string, unknown>;
  const isHttp =
    typeof httpMethod === 'string' ||
    typeof rawPath === 'string' ||
    (typeof requestContext === 'object' && requestContext !== null && 'http' in requestContext);
  if (isHttp) return;
  throw new NotHttpError(
    'The event is no HTTP request of API Gateway or a function URL: it has neither httpMethod nor requestContext.http. This function answers HTTP alone; send it nothing else.',
  );
}

/**
 * Reads an event of either payload version. A missing or null part is an empty one.
 *
 * @throws NotHttpError; Error where the body is no text any more.
 */
export function readRequest(event: HttpEvent): HttpRequest {
  assertHttp(event);
  const isV2 = 'requestContext' in event && 'http' in (event.requestContext ?? {});
  return isV2 ? readV2(event as APIGatewayProxyEventV2) : readV1(event as APIGatewayProxyEvent);
}

function readV2(event: APIGatewayProxyEventV2): HttpRequest {
  const http: Partial<APIGatewayProxyEventV2['requestContext']['http']> | null =
    event.requestContext.http;
  const method = (http?.method ?? '').toUpperCase();
  const path = event.rawPath ?? http?.path ?? '/';
  // `POST /things/{id}`, `ANY /things`, or `$default`, which has no template.
  const template = event.routeKey?.split(' ')[1];
  return {
    method,
    path,
    endpoint: `${method} ${template ?? path}`,
    params: readParams(event.pathParameters),
    query: event.rawQueryString ? sortedQuery([...new URLSearchParams(event.rawQueryString)]) : [],
    header: headerReader(event.headers, undefined),
    body: bodyBytes(event.body, event.isBase64Encoded),
  };
}

function readV1(event: APIGatewayProxyEvent): HttpRequest {
  const multi = event.multiValueQueryStringParameters;
  const single = event.queryStringParameters;
  const pairs: [string, string][] = multi
    ? Object.entries(multi).flatMap(([name, values]) =>
        (values ?? []).map((value): [string, string] => [name, value]),
      )
    : Object.entries(single ?? {}).map(([name, value]) => [name, value ?? '']);
  const method = (event.httpMethod ?? '').toUpperCase();
  const path = event.path ?? '/';
  return {
    method,
    path,
    endpoint: `${method} ${event.resource ?? path}`,
    params: readParams(event.pathParameters),
    query: sortedQuery(pairs),
    header: headerReader(event.headers, event.multiValueHeaders),
    body: bodyBytes(event.body, event.isBase64Encoded),
  };
}

function readParams(
  params: Readonly<Record<string, string | undefined>> | null | undefined,
): Record<string, string> {
  const named = Object.entries(params ?? {});
  return Object.fromEntries(
    named.flatMap(([name, value]) => (value == null ? [] : [[name, value]])),
  );
}

/** By name alone: `a=1&a=2` is a list, and `a=2&a=1` another one. */
function sortedQuery(pairs: [string, string][]): [string, string][] {
  return pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
}

type SingleHeaders = Readonly<Record<string, string | undefined>> | null | undefined;
type MultiHeaders = Readonly<Record<string, readonly string[] | undefined>> | null | undefined;

/** Read at once: what a handler does to the event's headers later changes nothing. */
function headerReader(single: SingleHeaders, multi: MultiHeaders) {
  const found = valuesByName(single);
  // Payload 1.0 carries both maps; `multiValueHeaders` is the complete one.
  for (const [name, values] of valuesByName(multi)) found.set(name, values);
  return (name: string): readonly string[] => found.get(name.toLowerCase()) ?? [];
}

function valuesByName(headers: SingleHeaders | MultiHeaders): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const [name, given] of Object.entries(headers ?? {})) {
    const values = [given].flat().filter((value) => value != null);
    if (values.length === 0) continue;
    const known = found.get(name.toLowerCase()) ?? [];
    found.set(name.toLowerCase(), [...known, ...values.map((value) => trimmed(String(value)))]);
  }
  return found;
}

/**
 * Without the optional white space of HTTP, which is space and tab and nothing
 * else (RFC 9110, section 5.6.3); `trim` would also take what no key may hold.
 */
export function trimmed(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && isSpaceOrTab(value.charCodeAt(start))) start++;
  while (end > start && isSpaceOrTab(value.charCodeAt(end - 1))) end--;
  return value.slice(start, end);
}

function isSpaceOrTab(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

function bodyBytes(body: unknown, isBase64Encoded: boolean | undefined): Buffer {
  if (body !== undefined && body !== null && typeof body !== 'string') {
    throw new Error(
      'The body of the event is no text any more: a middleware before this one has parsed it. idempotency() must come before the body parser: it hashes the body as it was sent.',
    );
  }
  return Buffer.from(body ?? '', isBase64Encoded ? 'base64' : 'utf8');
}
