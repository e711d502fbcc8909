import { Problem } from './problems.ts';
import type { HttpRequest } from './request.ts';

/** The versions that the client accepts; `any` stands for `*`. */
export type IfMatch = 'any' | readonly string[];

/** One member of the list, which may be empty; a tag may hold a comma (RFC 9110, 5.6.1 and 8.8.3). */
const MEMBER = /[ \t]*(?:(W\/)?"([\x21\x23-\x7e\x80-\uffff]*)"[ \t]*)?(?:,|$)/y;

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
  const list = values.join(',');
  if (list === '*') return 'any';
  const tags = membersOf(list).filter(([, , tag]) => tag !== undefined);
  if (tags.length === 0) throw malformed();
  return tags.flatMap(([, weak, tag]) => (weak === undefined ? [tag as string] : []));
}

/** Whether `version` (as the ETag says it, without its quotes) is one that the client accepts. */
export function acceptsVersion(ifMatch: IfMatch | undefined, version: string): boolean {
  return ifMatch === undefined || ifMatch === 'any' || ifMatch.includes(version);
}

function membersOf(list: string): RegExpExecArray[] {
  const members: RegExpExecArray[] = [];
  for (let at = 0; at < list.length; at = MEMBER.lastIndex) {
    MEMBER.lastIndex = at;
    const member = MEMBER.exec(list);
    if (!member) throw malformed();
    members.push(member);
  }
  return members;
}

function malformed(): Problem {
  return new Problem(
    'PRECONDITION_MALFORMED',
    'If-Match must be * or entity tags as the ETag header gave them, for example "7".',
  );
}
