import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Mutation } from '../../shared/core/contract.ts';
import { httpCodec, type KeptResponse } from '../../shared/http/codec.ts';
import { decode, encodeCompleted, encodePending } from '../../shared/redis/entries.ts';

const mutation: Mutation = {
  principal: 'alice',
  key: 'K1',
  endpoint: 'POST /x',
  fingerprint: '1:abc',
  token: '4b3d7f0e-0000-4000-8000-000000000000',
  deadlineMs: 1_796_000_000_000.25,
};

const response: KeptResponse = {
  statusCode: 201,
  headers: { etag: '"2"', location: '/x' },
  body: '{"a":1}',
  isBase64Encoded: false,
};

/** What a replay would answer; undefined where the entry counts as none. */
function responseIn(entry: object) {
  const lookup = decode(JSON.stringify(entry));
  const codec = httpCodec({ storedBodyBytesMax: 1000 });
  return lookup?.kind === 'completed' ? codec.decode(lookup.kept) : undefined;
}

const completed = encodeCompleted('1:abc', response, 1_796_000_000_001.5);
const pending = encodePending(mutation);

describe('entries through their text and back', () => {
  test('a pending entry comes back as it was', () => {
    const { fingerprint, deadlineMs } = mutation;
    expect(decode(pending)).toEqual({ kind: 'pending', fingerprint, deadlineMs });
  });

  test('a completed entry comes back as it was', () => {
    expect(decode(completed)).toEqual({
      kind: 'completed',
      fingerprint: '1:abc',
      kept: response,
      expiresAtMs: 1_796_000_000_001.5,
    });
  });

  test('a tombstone comes back as it was', () => {
    expect(decode(encodeCompleted('1:abc', 'tombstone', 5))).toEqual({
      kind: 'completed',
      fingerprint: '1:abc',
      kept: 'tombstone',
      expiresAtMs: 5,
    });
  });

  test('a body that only says tombstone is not one', () => {
    const body = 'tombstone';
    expect(decode(encodeCompleted('1:abc', { ...response, body }, 5))).toMatchObject({
      kept: { body },
    });
  });

  // What Redis keeps is bytes: the text must survive UTF-8 too.
  const overTheWire = (text: string) => Buffer.from(text, 'utf8').toString('utf8');

  test('a body of every byte, of lone surrogates, of anything comes back as it was', () => {
    const everyByte = String.fromCharCode(...Array(256).keys());
    for (const body of [everyByte, '\ud800', '\udc00\ud800', '\u2028', '😀', '']) {
      const text = encodeCompleted('1:abc', { ...response, body }, 5);
      expect(decode(overTheWire(text))).toMatchObject({ kept: { body } });
    }
    fc.assert(
      fc.property(
        fc.string({ unit: fc.nat(0xffff).map((code) => String.fromCharCode(code)) }),
        (body) => {
          const text = encodeCompleted('1:abc', { ...response, body }, 5);
          expect(decode(overTheWire(text))).toMatchObject({ kept: { body } });
        },
      ),
    );
  });
});

test('the same mutation has the same pending text, and another owner has another one', () => {
  expect(encodePending({ ...mutation })).toBe(pending);
  expect(encodePending({ ...mutation, token: 'other' })).not.toBe(pending);
});

describe('an entry that cannot be read', () => {
  test.each(['', ' ', 'null', '0', '"x"', '[]', '{}', 'x', '\0', 'undefined', '[[', '{"v":1}'])(
    'the text %j is a miss (C19)',
    (text) => {
      expect(decode(text)).toBeUndefined();
    },
  );

  test.each([
    ['pending', pending],
    ['completed', completed],
  ])('a %s entry cut off anywhere is a miss (C19)', (_, text) => {
    for (let length = 0; length < text.length; length++) {
      expect(decode(text.slice(0, length))).toBeUndefined();
    }
  });

  test.each([
    ['another version', { v: 2 }],
    ['a version that is text', { v: '1' }],
    ['no version', { v: undefined }],
    ['no fingerprint', { fingerprint: undefined }],
    ['a fingerprint that is a number', { fingerprint: 1 }],
    ['another state', { state: 'failed' }],
    ['no state', { state: undefined }],
  ])('an entry with %s is a miss', (_, other) => {
    expect(decode(JSON.stringify({ ...JSON.parse(pending), ...other }))).toBeUndefined();
    expect(decode(JSON.stringify({ ...JSON.parse(completed), ...other }))).toBeUndefined();
  });

  test.each([
    ['no deadline', undefined],
    ['a deadline that is text', '5'],
    ['a deadline that is null', null],
  ])('a pending entry with %s is a miss', (_, deadlineMs) => {
    expect(decode(JSON.stringify({ ...JSON.parse(pending), deadlineMs }))).toBeUndefined();
  });

  test('an entry with a number beyond all numbers is a miss', () => {
    const endless = (text: string) =>
      text.replace(/"(deadlineMs|expiresAtMs)":[\d.]+/, '"$1":1e999');
    expect(endless(pending)).toContain('1e999');
    expect(decode(endless(pending))).toBeUndefined();
    expect(decode(endless(completed))).toBeUndefined();
  });

  test('a completed entry without a response is a miss (C18)', () => {
    for (const none of [undefined, null, '', 'tomb', 0, [], {}]) {
      expect(responseIn({ ...JSON.parse(completed), response: none })).toBeUndefined();
    }
  });

  test('a completed entry without an expiry is a miss', () => {
    for (const expiresAtMs of [undefined, null, '5']) {
      const text = JSON.stringify({ ...JSON.parse(completed), expiresAtMs });
      expect(decode(text)).toBeUndefined();
    }
  });

  test.each([
    ['statusCode', '201'],
    ['statusCode', null],
    ['statusCode', undefined],
    ['headers', null],
    ['headers', 'etag'],
    ['headers', undefined],
    ['headers', ['etag']],
    ['headers', { etag: 1 }],
    ['headers', { etag: null }],
    ['headers', { etag: ['"1"'] }],
    ['body', null],
    ['body', undefined],
    ['body', { a: 1 }],
    ['isBase64Encoded', 'false'],
    ['isBase64Encoded', 0],
    ['isBase64Encoded', undefined],
  ])('a response whose %s is %j is a miss', (member, value) => {
    const entry = { ...JSON.parse(completed), response: { ...response, [member]: value } };
    expect(responseIn(entry)).toBeUndefined();
  });

  test('no text at all makes the decoder throw', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.json()), (text) => {
        expect(decode(text)).toBeUndefined();
      }),
    );
  });
});
