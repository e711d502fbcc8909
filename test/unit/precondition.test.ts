import { describe, expect, test } from 'vitest';
import { readIfMatch } from '../../shared/http/precondition.ts';
import { type HttpEvent, readRequest } from '../../shared/http/request.ts';
import { httpEvent, restEvent } from '../support/requests.ts';

const of = (value: string) =>
  readIfMatch(readRequest(httpEvent({ headers: { 'if-match': value } })));

test('a missing If-Match is no precondition', () => {
  expect(readIfMatch(readRequest(httpEvent({})))).toBeUndefined();
  expect(readIfMatch(readRequest(restEvent({})))).toBeUndefined();
});

test.each([
  ['"7"', ['7']],
  [' "7"\t', ['7']],
  ['""', ['']],
  ['"7", "8"', ['7', '8']],
  ['"7","8" ,\t"9"', ['7', '8', '9']],
  // RFC 9110, 5.6.1.2: empty members of a list are passed over.
  ['"7",, "8",', ['7', '8']],
  [', "7"', ['7']],
  // A comma or a backslash may stand in a tag, which has no escapes.
  ['"a,b"', ['a,b']],
  ['"a\\", "b"', ['a\\', 'b']],
  ['"é"', ['é']],
])('%s accepts these versions', (value, versions) => {
  expect(of(value)).toEqual(versions);
});

test.each(['*', ' * '])('%j accepts any version', (value) => {
  expect(of(value)).toBe('any');
});

test('a weak tag is well-formed and matches nothing, since If-Match compares strongly', () => {
  expect(of('W/"7"')).toEqual([]);
  expect(of('W/"7", "8"')).toEqual(['8']);
});

test.each([
  '',
  '  ',
  ',',
  '7',
  "'7'",
  '"7',
  '7"',
  '"',
  '"7" "8"',
  '"7";"8"',
  '"7"x',
  'w/"7"',
  'W/',
  'W/ "7"',
  'W/7',
  '*, "7"',
  '"7", *',
  '**',
  '"a\0b"',
  '"a b"',
  '"a\u007fb"',
])('%j is PRECONDITION_MALFORMED', (value) => {
  expect(() => of(value)).toThrow(expect.objectContaining({ code: 'PRECONDITION_MALFORMED' }));
});

describe('several fields of a payload 1.0', () => {
  const ofFields = (...values: string[]) =>
    readIfMatch(
      readRequest({ ...restEvent({}), multiValueHeaders: { 'If-Match': values } } as HttpEvent),
    );

  test('several fields are one list', () => {
    expect(ofFields('"7"', '"8", W/"9"')).toEqual(['7', '8']);
  });

  test('several fields hold no star among others', () => {
    expect(() => ofFields('*', '"7"')).toThrow(
      expect.objectContaining({ code: 'PRECONDITION_MALFORMED' }),
    );
  });
});

test('a very long list is not gone through again for each of its letters', () => {
  const startMs = performance.now();
  expect(of(`${'"7", '.repeat(20_000)}"8"`)).toHaveLength(20_001);
  expect(() => of(`"${' '.repeat(100_000)}`)).toThrow();
  expect(() => of(`${' '.repeat(100_000)}x`)).toThrow();
  // Milliseconds; a quadratic one takes minutes.
  expect(performance.now() - startMs).toBeLessThan(20_000);
});
