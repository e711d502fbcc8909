import type { HttpResponse } from './problems.ts';

/** A response whose body is this value as JSON. */
export function json(
  statusCode: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): HttpResponse {
  return {
    statusCode,
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  };
}
