import { isUtf8 } from 'node:buffer';
import type { MiddlewareObj } from '@middy/core';
import type { Context } from 'aws-lambda';
import { en } from 'zod/locales';
import type { ZodMiniType } from 'zod/mini';
import { type HttpResponse, Problem } from '../http/problems.ts';
import type { HttpEvent, HttpRequest } from '../http/request.ts';

type BodyStep = MiddlewareObj<HttpEvent, HttpResponse, Error, Context & { http: HttpRequest }>;

/** What zod/mini leaves out: without it every message says "Invalid input". */
const { localeError } = en();

/**
 * Before the parser: spells the content type as the parser looks for it. A client of
 * payload 1.0 chooses the case of its name, and any client may put a space before a
 * parameter (RFC 9110, section 5.6.6).
 */
export function spellContentType(): BodyStep {
  return {
    before: ({ event, context: { http } }) => {
      const [contentType] = http.header('content-type');
      if (contentType !== undefined) {
        const spelled = contentType.replace(/^([^\s;]*)[ \t]+;/, '$1;');
        event.headers = { ...event.headers, 'content-type': spelled };
      }
    },
  };
}

/**
 * After the parser: refuses what is not of this shape.
 *
 * @throws Problem BODY_INVALID, with a member `errors` of `{ path, message }` where
 * it is the shape.
 */
export function validateBody<Body>(schema: ZodMiniType<Body>): BodyStep {
  return {
    before: (request) => {
      // The parser has put U+FFFD where the bytes made no character.
      if (!isUtf8(request.context.http.body)) {
        throw new Problem('BODY_INVALID', 'The body is not UTF-8, as JSON must be.');
      }
      const event = request.event as { body?: unknown };
      const parsed = schema.safeParse(event.body, { error: localeError });
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
