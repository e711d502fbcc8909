import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decodeKept, encodeKept } from '../../shared/core/kept.ts';
import { httpCodec, type KeptResponse } from '../../shared/http/codec.ts';

const response: KeptResponse = {
  statusCode: 201,
  headers: { etag: '"2"' },
  body: '{"a":1}',
  isBase64Encoded: false,
};

const { decode } = httpCodec({ storedBodyBytesMax: 1000 });
const read = (text: string) => decode(decodeKept(text));

/** Stores keep bytes. */
const throughBytes = (text: string) => Buffer.from(text, 'utf8').toString('utf8');

test('a response and a tombstone come back as they were', () => {
  expect(read(encodeKept(response))).toEqual(response);
  expect(decodeKept(encodeKept('tombstone'))).toBe('tombstone');
});

test('any text of JavaScript’s comes back, NUL and half a surrogate pair included', () => {
  const unit = fc.nat(0xffff).map((code) => String.fromCharCode(code));
  fc.assert(
    fc.property(fc.string({ unit }), (body) => {
      const kept = { ...response, body };
      expect(decodeKept(throughBytes(encodeKept(kept)))).toEqual(kept);
    }),
  );
  const body = `\0\ud800${String.fromCharCode(...Array(256).keys())}`;
  expect(encodeKept({ ...response, body })).not.toContain('\0');
});

test('a text that is cut off anywhere cannot be read', () => {
  const text = encodeKept(response);
  for (let length = 0; length < text.length; length++) {
    expect(decodeKept(text.slice(0, length))).toBeUndefined();
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
  expect(read(text)).toBeUndefined();
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
  expect(read(encodeKept({ ...response, [member]: value }))).toBeUndefined();
});
