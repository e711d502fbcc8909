import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { shortHash } from '../../shared/core/loggable.ts';
import { readKey } from '../../shared/http/key.ts';
import { Problem } from '../../shared/http/problems.ts';
import { type HttpEvent, readRequest } from '../../shared/http/request.ts';
import { httpEvent, restEvent } from '../support/requests.ts';

const keyOf = (event: HttpEvent) => readKey(readRequest(event));
const fromV2 = (key: string | null) => keyOf(httpEvent({ key }));
const fromV1 = (key: string | null) => keyOf(restEvent({ key }));

/** What reading made of it: the key, or the code of the problem. */
function outcome(read: () => string | undefined): { key?: string | undefined; code?: string } {
  try {
    return { key: read() };
  } catch (error) {
    if (error instanceof Problem) return { code: error.code };
    throw error;
  }
}

const MALFORMED = { code: 'KEY_MALFORMED' };

describe.each([
  { payload: '2.0', read: fromV2 },
  { payload: '1.0', read: fromV1 },
])('the key of a payload $payload', ({ read }) => {
  test('a quoted key and the bare token are the same key (C86)', () => {
    expect(read('abc-123')).toBe('abc-123');
    expect(read('"abc-123"')).toBe('abc-123');
  });

  test('a key has 255 characters at the most, and not 256 or 6,400 (C71)', () => {
    expect(read('k'.repeat(255))).toBe('k'.repeat(255));
    expect(outcome(() => read('k'.repeat(256)))).toEqual(MALFORMED);
    expect(outcome(() => read('k'.repeat(6400)))).toEqual(MALFORMED);
  });

  test('the length counts after unquoting (C71)', () => {
    expect(read(`"${'\\"'.repeat(255)}"`)).toBe('"'.repeat(255));
    expect(outcome(() => read(`"${'k'.repeat(256)}"`))).toEqual(MALFORMED);
  });

  test.each(['', ' ', '   ', '\t', '""', '"   "', '" K1 "'])('%j is no key (C87)', (value) => {
    expect(outcome(() => read(value))).toEqual(MALFORMED);
  });

  test.each([' K1 ', '\tK1\t', ' "K1" '])('%j is trimmed to K1 (C87)', (value) => {
    expect(read(value)).toBe('K1');
  });

  const controls = [...Array(32).keys(), 127].map((code) => String.fromCharCode(code));
  test.each(controls)('the control character %j is refused inside a key (C87)', (char) => {
    expect(outcome(() => read(`K${char}1`))).toEqual(MALFORMED);
    expect(outcome(() => read(`"K${char}1"`))).toEqual(MALFORMED);
  });

  test.each(controls.filter((char) => char !== '\t'))(
    'the control character %j is refused at the ends too: only space and tab surround a value (C87)',
    (char) => {
      expect(outcome(() => read(`${char}K1`))).toEqual(MALFORMED);
      expect(outcome(() => read(`K1${char}`))).toEqual(MALFORMED);
    },
  );

  test.each(['a:b', 't1:a', 'a/b', 'a|b', 'a%3Ab', "a'b", 'a"b', 'a\\b', '{a}'])(
    'the delimiter in %j is part of the key (C87)',
    (value) => {
      expect(read(value)).toBe(value);
    },
  );

  test.each(['caf\u00e9', 'cafe\u0301', '\u00a0K1', 'K1\ufeff', 'K\u20281', '\ud800', '🔑'])(
    '%j is refused, since a key is ASCII and so has one spelling (C88)',
    (value) => {
      expect(outcome(() => read(value))).toEqual(MALFORMED);
    },
  );

  test.each([
    ['"a\\"b"', 'a"b'],
    ['"a\\\\b"', 'a\\b'],
    ['"\\"\\""', '""'],
    ['a"b', 'a"b'],
  ])('%s stands for %s', (value, key) => {
    expect(read(value)).toBe(key);
  });

  test.each([
    ['an escape that RFC 9651 does not have', '"a\\nb"'],
    ['an end that is escaped', '"a\\"'],
    ['no end', '"a'],
    ['a lone quote', '"'],
    ['text after the string', '"a"b'],
    ['a parameter after the string', '"abc";p=1'],
    ['a parameter after a space', '"abc" ;p'],
    ['a comma inside the string', '"a,b"'],
    ['a space in the token', 'a b'],
  ])('%s is refused: %s', (_, value) => {
    expect(outcome(() => read(value))).toEqual(MALFORMED);
  });

  test('the same value twice, joined by a comma, is one', () => {
    expect(read('K1,K1')).toBe('K1');
    expect(read('K1, "K1" ,K1')).toBe('K1');
  });

  test.each(['K1,K2', 'K1, ', ',K1', '"K1","k1"', ','])('%j is two values or none', (value) => {
    expect(outcome(() => read(value))).toEqual(MALFORMED);
  });

  test('a missing header is no key', () => {
    expect(read(null)).toBeUndefined();
  });

  test('any visible ASCII without a comma is the same key bare and quoted', () => {
    const char = fc.integer({ min: 0x21, max: 0x7e }).map((code) => String.fromCharCode(code));
    const key = fc
      .string({ unit: char, minLength: 1, maxLength: 255 })
      .filter((text) => !text.includes(',') && !text.startsWith('"'));
    fc.assert(
      fc.property(key, (text) => {
        expect(read(text)).toBe(text);
        expect(read(`"${text.replace(/["\\]/g, '\\$&')}"`)).toBe(text);
      }),
    );
  });

  test('any text at all is a key within the rules or KEY_MALFORMED', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
        const { key, code } = outcome(() => read(text));
        if (code === undefined) expect(key).toMatch(/^[\x21-\x2b\x2d-\x7e]{1,255}$/);
        else expect(code).toBe('KEY_MALFORMED');
      }),
    );
  });
});

describe('two fields of a payload 1.0', () => {
  const withFields = (...values: string[]) => {
    const event = restEvent({ key: null });
    return {
      ...event,
      headers: { ...event.headers, 'Idempotency-Key': values.at(-1) },
      multiValueHeaders: { 'Idempotency-Key': values },
    } as HttpEvent;
  };

  test('two fields with the same value are one key', () => {
    expect(keyOf(withFields('K1', '"K1"'))).toBe('K1');
  });

  test('two fields with two values are refused, though `headers` shows only the last', () => {
    expect(outcome(() => keyOf(withFields('K1', 'K2')))).toEqual(MALFORMED);
  });

  test('two fields that differ in the case of their names are two all the same', () => {
    const event = {
      ...restEvent({ key: null }),
      multiValueHeaders: { 'Idempotency-Key': ['K1'], 'idempotency-key': ['K2'] },
    } as unknown as HttpEvent;
    expect(outcome(() => keyOf(event))).toEqual(MALFORMED);
  });
});

test('the refusal does not repeat the key', () => {
  const secret = `secret-${'x'.repeat(255)}`;
  expect(() => fromV2(secret)).toThrow(/^(?!.*secret)KEY_MALFORMED: .*more than 255/);
});

test('the short hash follows a key and does not show it', () => {
  // echo -n K1 | sha256sum
  expect(shortHash('K1')).toBe('badb7283766a');
  expect(shortHash('K2')).not.toBe(shortHash('K1'));
});
