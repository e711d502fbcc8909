import type { MiddlewareObj } from '@middy/core';
import type { Context } from 'aws-lambda';
import type { ZodMiniType } from 'zod/mini';
import { type HttpResponse, Problem } from './problems.ts';
import type { HttpEvent, HttpRequest } from './request.ts';

/**
 * Before the parser: refuses what is too large, and spells the content type's
 * name as the parser looks for it (a client of payload 1.0 chooses the case).
 *
 * @throws Problem PAYLOAD_TOO_LARGE
 */
export function acceptBody(
  bytesMax: number,
): MiddlewareObj<HttpEvent, HttpResponse, Error, Context & { http: HttpRequest }> {
  return {
    before: ({ event, context: { http } }) => {
      if (http.body.length > bytesMax) {
        throw new Problem(
          'PAYLOAD_TOO_LARGE',
          `The body has ${http.body.length} bytes; at most ${bytesMax} are taken.`,
        );
      }
      const [contentType] = http.header('content-type');
      if (contentType !== undefined) {
        event.headers = { ...event.headers, 'content-type': contentType };
      }
    },
  };
}

/**
 * After the parser: refuses what is not of this shape.
 *
 * @throws Problem BODY_INVALID, with a member `errors` of `{ path, message }`.
 */
export function validateBody<Body>(
  schema: ZodMiniType<Body>,
): MiddlewareObj<HttpEvent, HttpResponse> {
  return {
    before: (request) => {
      const event = request.event as { body?: unknown };
      const parsed = schema.safeParse(event.body);
      if (!parsed.success) {
        const errors = parsed.error.issues.map(({ path, message }) => ({
          path: path.map(String).join('.'),
          message,
        }));
        const detail = errors.map(({ path, message }) => (path ? `${path}: ${message}` : message));
        throw new Problem('BODY_INVALID', detail.join('; '), { members: { errors } });
      }
      event.body = parsed.data;
    },
  };
}
