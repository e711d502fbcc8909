import { Problem } from './problems.ts';
import type { HttpRequest } from './request.ts';

/** The versions that the client accepts; `any` stands for `*`. */
export type IfMatch = 'any' | readonly string[];

const ENTITY_TAG = /^(W\/)?"([\x21\x23-\x7e\x80-\uffff]*)"$/;

/**
 * The request's If-Match, or undefined when it carries none. Compared strongly
 * (RFC 9110, section 13.1.1), so a weak tag is well-formed and matches nothing.
 *
 * Read it early, but judge it inside the work: a retry must meet its replay, not
 * a 412 over the version that it made itself.
 *
 * @throws Problem PRECONDITION_MALFORMED
 */
export function readIfMatch(request: HttpRequest): IfMatch | undefined {
  const values = request.header('if-match');
  if (values.length === 0) return undefined;
  const members = values
    .join(',')
    .split(',')
    .map((member) => member.trim());
  if (members.length === 1 && members[0] === '*') return 'any';
  return members.flatMap((member) => {
    const tag = ENTITY_TAG.exec(member);
    if (!tag) {
      throw new Problem(
        'PRECONDITION_MALFORMED',
        'If-Match must be * or entity tags as the ETag header gave them, for example "7".',
      );
    }
    return tag[1] === undefined ? [tag[2] as string] : [];
  });
}
