import { randomUUID } from 'node:crypto';
import type { APIGatewayProxyEvent, APIGatewayProxyEventV2, Context } from 'aws-lambda';
import type { HttpEvent, HttpResponse } from '../../shared/index.ts';
import type { Handler } from '../../shared/service/index.ts';

export interface RequestOptions {
  readonly method?: string;
  readonly path?: string;
  /** undefined: no authorizer has spoken. */
  readonly principal?: string | undefined;
  /** null: no such header. */
  readonly key?: string | null;
  readonly body?: unknown;
  readonly rawBody?: string;
  readonly headers?: Record<string, string>;
  readonly query?: string;
  /** What the `{names}` of the route stand for. */
  readonly params?: Record<string, string>;
  readonly isBase64Encoded?: boolean;
}

export const newKey = (): string => randomUUID();

function textOf(options: RequestOptions): string | undefined {
  if (options.rawBody !== undefined) return options.rawBody;
  return options.body === undefined ? undefined : JSON.stringify(options.body);
}

/** Payload 2.0, as the HTTP API sends it. */
export function httpEvent(options: RequestOptions): HttpEvent {
  const { method = 'POST', path = '/players/me/coins/spend', principal, key } = options;
  const body = textOf(options);
  const event = {
    version: '2.0',
    routeKey: `${method} ${path}`,
    rawPath: path,
    rawQueryString: options.query ?? '',
    ...(options.params && { pathParameters: options.params }),
    headers: {
      'content-type': 'application/json',
      ...(key != null && { 'idempotency-key': key }),
      ...options.headers,
    },
    requestContext: {
      http: { method, path, protocol: 'HTTP/1.1', sourceIp: '127.0.0.1', userAgent: 'test' },
      ...(principal !== undefined && {
        authorizer: { jwt: { claims: { sub: principal }, scopes: [] } },
      }),
    },
    ...(body !== undefined && { body }),
    isBase64Encoded: options.isBase64Encoded ?? false,
  };
  return event as unknown as APIGatewayProxyEventV2;
}

/** Payload 1.0, as a REST API sends it. */
export function restEvent(options: RequestOptions): HttpEvent {
  const { method = 'POST', path = '/players/me/coins/spend', principal, key } = options;
  const headers: Record<string, string> = {
    'Content-Type': 'application/json',
    ...(key != null && { 'Idempotency-Key': key }),
    ...options.headers,
  };
  const event = {
    httpMethod: method,
    path,
    headers,
    multiValueHeaders: Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, [value]]),
    ),
    pathParameters: options.params ?? null,
    queryStringParameters: null,
    multiValueQueryStringParameters: null,
    requestContext: {
      identity: {},
      ...(principal !== undefined && { authorizer: { claims: { sub: principal } } }),
    },
    body: textOf(options) ?? null,
    isBase64Encoded: options.isBase64Encoded ?? false,
  };
  return event as unknown as APIGatewayProxyEvent;
}

/** A Lambda context with `remainingMs` left from now on. */
export function lambdaContext(remainingMs = 28_000): Context {
  const endMs = performance.now() + remainingMs;
  return {
    awsRequestId: randomUUID(),
    getRemainingTimeInMillis: () => Math.max(0, Math.floor(endMs - performance.now())),
  } as Context;
}

export interface Answer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Record<string, string>;
  readonly text: string;
  readonly json: Record<string, unknown>;
  /** The problem code, where the answer is a problem. */
  readonly code: string | undefined;
}

export function answerOf(response: HttpResponse): Answer {
  const text = response.body ?? '';
  const headers = Object.fromEntries(
    Object.entries(response.headers ?? {}).map(([name, value]) => [
      name.toLowerCase(),
      String(value),
    ]),
  );
  let json: Record<string, unknown> = {};
  try {
    json = JSON.parse(text) as Record<string, unknown>;
  } catch {}
  const isProblem = headers['content-type'] === 'application/problem+json';
  return {
    status: response.statusCode,
    headers,
    text,
    json,
    code: isProblem ? String(json['code']) : undefined,
  };
}

export async function send(
  handler: Handler,
  options: RequestOptions,
  context: Context = lambdaContext(),
): Promise<Answer> {
  return answerOf(await handler(httpEvent(options), context));
}
