import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { StoredResponse } from '../../shared/core/contract.ts';
import { decodeStored, encodeStored } from '../../shared/http/stored-format.ts';

const response: StoredResponse = {
  statusCode: 201,
  headers: { etag: '"2"' },
  body: '{"a":1}',
  isBase64Encoded: false,
};

/** Stores keep bytes. */
const throughBytes = (text: string) => Buffer.from(text, 'utf8').toString('utf8');

test('a response and a tombstone come back as they were', () => {
  expect(decodeStored(encodeStored(response))).toEqual(response);
  expect(decodeStored(encodeStored('tombstone'))).toBe('tombstone');
});

test('any text of JavaScript’s comes back, NUL and half a surrogate pair included', () => {
  const unit = fc.nat(0xffff).map((code) => String.fromCharCode(code));
  fc.assert(
    fc.property(fc.string({ unit }), (body) => {
      const kept = { ...response, body };
      expect(decodeStored(throughBytes(encodeStored(kept)))).toEqual(kept);
    }),
  );
  const body = `\0\ud800${String.fromCharCode(...Array(256).keys())}`;
  expect(encodeStored({ ...response, body })).not.toContain('\0');
});

test('a text that is cut off anywhere cannot be read', () => {
  const text = encodeStored(response);
  for (let length = 0; length < text.length; length++) {
    expect(decodeStored(text.slice(0, length))).toBeUndefined();
  }
});

test.each([
  '',
  'null',
  '1',
  '"tombstone"',
  '[]',
  '{}',
  '{"v":1}',
  '{"v":1,"response":null}',
  '{"v":1,"response":"tomb"}',
  '{"v":2,"response":"tombstone"}',
  '{"v":"1","response":"tombstone"}',
  '{"response":"tombstone"}',
])('%s cannot be read', (text) => {
  expect(decodeStored(text)).toBeUndefined();
});

test.each([
  ['statusCode', '201'],
  ['statusCode', null],
  ['headers', null],
  ['headers', { etag: 1 }],
  ['headers', ['etag']],
  ['body', null],
  ['isBase64Encoded', 'false'],
  // Whoever can write to the store could set a cookie with an answer of ours.
  ['statusCode', 99_999.5],
  ['statusCode', 103],
  ['statusCode', 500],
  ['headers', { 'set-cookie': 'a=1' }],
  ['headers', { 'x-anything': '1' }],
  ['headers', { ETag: '"1"' }],
  ['headers', { etag: '"1"\r\nset-cookie: a=1' }],
])('a response whose %s is %j cannot be read (core 22)', (member, value) => {
  expect(decodeStored(encodeStored({ ...response, [member]: value }))).toBeUndefined();
});
