import { isUtf8 } from 'node:buffer';
import { canonicalJson, fingerprintOf, JsonTooDeepError } from '../core/fingerprint.ts';
import { Problem } from './problems.ts';
import type { HttpRequest } from './request.ts';

/**
 * The fingerprint of a request: principal, method, path, query and body.
 *
 * A JSON body is hashed by meaning: member order and white space do not count,
 * numbers count as they are spelled, array order counts. Any other body is hashed
 * by its bytes.
 *
 * @throws Problem BODY_INVALID for JSON nested deeper than 64.
 */
export function requestFingerprint(principal: string, request: HttpRequest): string {
  const { method, path, query } = request;
  return fingerprintOf([principal, method, path, JSON.stringify(query)], bodyOf(request));
}

function bodyOf(request: HttpRequest): string | Buffer {
  const type = request.header('content-type')[0] ?? '';
  if (!/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) return request.body;
  // What is not JSON after all is refused by the body parser, in its own turn.
  const text = isUtf8(request.body) ? request.body.toString('utf8') : '';
  try {
    return canonicalJson(text) ?? request.body;
  } catch (error) {
    if (error instanceof JsonTooDeepError) throw new Problem('BODY_INVALID', error.message);
    throw error;
  }
}
