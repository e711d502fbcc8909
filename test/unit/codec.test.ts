import { describe, expect, test } from 'vitest';
import { INSUFFICIENT_COINS } from '../../functions/problems.ts';
import { asFresh, asReplayed, httpCodec, type KeptResponse } from '../../shared/http/codec.ts';
import { type HttpResponse, Problem } from '../../shared/http/problems.ts';
import { RESPONSE_BYTES_MAX, toResponse, withHeadersOf } from '../../shared/http/response.ts';

const CAP = 1000;
const EXPIRES_AT_MS = Date.UTC(2026, 10, 30, 12, 0, 0, 999);
const EXPIRES = 'Mon, 30 Nov 2026 12:00:00 GMT';

const encode = (response: HttpResponse, storedBodyBytesMax: number) =>
  httpCodec({ storedBodyBytesMax }).encode(response);
const stored = (response: HttpResponse) => encode(toResponse(response), CAP) as KeptResponse;
const replayOf = (response: HttpResponse) => asReplayed({ ...stored(response) }, EXPIRES_AT_MS);

describe('what a replay repeats', () => {
  test.each([200, 201, 202, 204, 303, 400, 402, 409])('%i comes back (C25)', (statusCode) => {
    expect(replayOf({ statusCode }).statusCode).toBe(statusCode);
  });

  test.each([
    'Content-Type',
    'Location',
    'ETag',
    'Link',
    'Cache-Control',
    'Last-Modified',
    'Content-Language',
    'Content-Encoding',
    'Content-Disposition',
    'Content-Location',
  ])('a replay has the header %s, in any case (C24)', (name) => {
    for (const spelled of [name, name.toLowerCase(), name.toUpperCase()]) {
      const { headers } = stored({ statusCode: 201, headers: { [spelled]: 'value' } });
      expect(headers).toEqual({ [name.toLowerCase()]: 'value' });
    }
  });

  test('a replay has the body, character for character', () => {
    const body = `${String.fromCharCode(...Array(256).keys())}\ud800"é😀`;
    expect(replayOf({ statusCode: 200, body }).body).toBe(body);
  });

  test('a replay has bytes as the base64 that they came in', () => {
    const body = Buffer.from([0, 255, 128]).toString('base64');
    expect(replayOf({ statusCode: 200, body, isBase64Encoded: true })).toMatchObject({
      body,
      isBase64Encoded: true,
    });
  });

  test('a replay has header values as text', () => {
    const headers = { etag: 7, 'content-type': true } as Record<string, number | boolean>;
    expect(stored({ statusCode: 200, headers }).headers).toEqual({
      etag: '7',
      'content-type': 'true',
    });
  });
});

describe('what a replay never repeats', () => {
  test.each([
    'Set-Cookie',
    'Content-Length',
    'Transfer-Encoding',
    'Connection',
    'Date',
    'Retry-After',
    'x-amzn-RequestId',
    'X-Request-Id',
    'Apigw-Requestid',
    'Access-Control-Allow-Origin',
    'Idempotency-Replayed',
    'Idempotency-Expires',
    'X-Anything',
    '__proto__',
  ])('a replay never has the header %s (C24, C81)', (name) => {
    const response = {
      statusCode: 200,
      headers: Object.fromEntries([[name, 'value']]),
      multiValueHeaders: Object.fromEntries([[name, ['value']]]),
    };
    expect(stored(response).headers).toEqual({});
  });

  test('a replay has no cookies, not one of them (C76)', () => {
    const response = { statusCode: 200, cookies: ['a=1', 'b=2'] };
    expect(replayOf(response)).not.toHaveProperty('cookies');
    expect(JSON.stringify(replayOf(response))).not.toContain('a=1');
  });

  test('a replay has no header that the fresh response did not send either', () => {
    const headers = { etag: undefined, location: null } as unknown as Record<string, string>;
    expect(stored({ statusCode: 200, headers }).headers).toEqual({});
  });
});

describe('the same header in two fields (C77)', () => {
  test('two Locations are one, the single field’s', () => {
    const response = {
      statusCode: 201,
      headers: { location: '/one' },
      multiValueHeaders: { Location: ['/two'] },
    };
    expect(stored(response).headers).toEqual({ location: '/one' });
  });

  test('two ETags are one, the first of several values', () => {
    const response = { statusCode: 200, multiValueHeaders: { ETag: ['"1"', '"2"'] } };
    expect(stored(response).headers).toEqual({ etag: '"1"' });
  });

  test('two Links are one list of links', () => {
    const response = { statusCode: 200, multiValueHeaders: { Link: ['</a>', '</b>'], ETag: [] } };
    expect(stored(response).headers).toEqual({ link: '</a>, </b>' });
  });
});

describe('the cap on a stored body', () => {
  test('the cap counts bytes: a body at it is kept, and one over it becomes a tombstone', () => {
    expect(stored({ statusCode: 200, body: 'a'.repeat(1000) }).body).toHaveLength(1000);
    expect(stored({ statusCode: 200, body: 'a'.repeat(1001) })).toBe('tombstone');
    expect(stored({ statusCode: 200, body: 'é'.repeat(500) }).body).toHaveLength(500);
    expect(stored({ statusCode: 200, body: 'é'.repeat(501) })).toBe('tombstone');
  });

  test('the cap does not mind a body that is missing', () => {
    expect(encode({ statusCode: 204 }, 1)).toEqual({
      statusCode: 204,
      headers: {},
      body: '',
      isBase64Encoded: false,
    });
  });
});

describe('what the contract adds', () => {
  test('a replay says so, and until when it can be had', () => {
    const response = { statusCode: 201, headers: { etag: '"2"' }, body: '{}' };
    expect(replayOf(response)).toEqual({
      statusCode: 201,
      headers: { etag: '"2"', 'idempotency-expires': EXPIRES, 'idempotency-replayed': 'true' },
      body: '{}',
      isBase64Encoded: false,
    });
  });

  test('a fresh response says until when, and is otherwise the handler’s own', () => {
    const response = { statusCode: 201, headers: { ETag: '"2"', 'X-A': 1 }, cookies: ['a=1'] };
    expect(asFresh(response, EXPIRES_AT_MS)).toEqual({
      ...response,
      headers: { ETag: '"2"', 'X-A': 1, 'idempotency-expires': EXPIRES },
    });
  });

  test('a response without a key has no expiry', () => {
    expect(asFresh({ statusCode: 200 }, undefined).headers).toEqual({});
  });

  test.each(['Idempotency-Replayed', 'idempotency-replayed', 'Idempotency-Expires'])(
    'a handler cannot claim %s for a fresh response, in either field',
    (name) => {
      const response = {
        statusCode: 200,
        headers: { [name]: 'true' },
        multiValueHeaders: { [name]: ['true'], 'X-A': ['1', '2'] },
      };
      const fresh = asFresh(toResponse(response), EXPIRES_AT_MS);
      expect(fresh.headers).toEqual({ 'idempotency-expires': EXPIRES });
      expect(fresh.multiValueHeaders).toEqual({ 'X-A': ['1', '2'] });
    },
  );

  test('the response that the handler made is left alone', () => {
    const response = Object.freeze({ statusCode: 200, headers: Object.freeze({ etag: '"1"' }) });
    expect(asFresh(response, EXPIRES_AT_MS)).not.toBe(response);
    expect(response.headers).toEqual({ etag: '"1"' });
  });
});

describe('what the work may return', () => {
  test('a response goes out unchanged, in a copy that the work cannot change any more', () => {
    const response = {
      statusCode: 200,
      headers: { etag: '"1"', 'X-Number': 1 },
      multiValueHeaders: { Vary: ['a', 'b'] },
      cookies: ['a=1'],
      body: 'x',
      isBase64Encoded: false,
      statusDescription: '200 OK',
    };
    const judged = toResponse(response);
    expect(judged).toEqual(response);
    const before = structuredClone(judged);
    Object.assign(response.headers, { etag: 1n });
    response.multiValueHeaders.Vary.push('c');
    response.cookies.push('b=2');
    expect(judged).toEqual(before);
  });

  test('a Problem goes out as the response that carries it', () => {
    const response = toResponse(new Problem(INSUFFICIENT_COINS, 'x'), 'https://p.example/');
    expect(response.statusCode).toBe(402);
    expect(JSON.parse(response.body as string).type).toBe('https://p.example/insufficient-coins');
  });

  test.each([
    ['nothing', undefined],
    ['null', null],
    ['text', 'ok'],
    ['no status', { body: 'ok' }],
    ['a status that is text', { statusCode: '200' }],
    ['a status below 100', { statusCode: 99 }],
    ['a status that only announces (C124)', { statusCode: 103 }],
    ['a status of 199 (C124)', { statusCode: 199 }],
    ['a status of 600', { statusCode: 600 }],
    ['a status between two', { statusCode: 200.5 }],
    ['a status that is no number', { statusCode: Number.NaN }],
  ])('%s is refused', (_, returned) => {
    expect(() => toResponse(returned as never)).toThrow(TypeError);
  });

  test.each([
    ['a web stream', new ReadableStream()],
    ['bytes', Buffer.from('x')],
    ['an object', { a: 1 }],
    ['null', null],
  ])('a body that is %s is refused loudly (C80)', (_, body) => {
    expect(() => toResponse({ statusCode: 200, body } as never)).toThrow(/must be a string/);
  });

  test('the error for a body that is no string says what makes one of it (library P1)', () => {
    expect(() => toResponse({ statusCode: 200, body: { a: 1 } } as never)).toThrow(
      /JSON\.stringify.*base64/,
    );
  });

  test.each([
    ['null', { headers: null }, /headers must be a plain object/],
    ['a list of pairs (library P8)', { headers: [['a', 'b']] }, /Object\.fromEntries/],
    ['a list in multiValueHeaders', { multiValueHeaders: [['a', 'b']] }, /Object\.fromEntries/],
    ['null in multiValueHeaders', { multiValueHeaders: null }, /plain object/],
    ['Headers', { headers: new Headers({ a: 'b' }) }, /Object\.fromEntries/],
    ['a Map', { headers: new Map([['a', 'b']]) }, /Object\.fromEntries/],
    ['text', { headers: 'a: b' }, /plain object/],
    ['a name with a space', { headers: { 'a b': 'c' } }, /no name of a header/],
    ['a name with a line break', { headers: { 'a\r\nb': 'c' } }, /no name of a header/],
    ['no name', { headers: { '': 'c' } }, /no name of a header/],
    ['a name with an umlaut', { headers: { ä: 'c' } }, /no name of a header/],
    ['a value with CR', { headers: { a: 'b\rc' } }, /the header a/],
    ['a value with LF', { headers: { a: 'b\nc' } }, /the header a/],
    ['a value with NUL', { headers: { a: 'b\0c' } }, /the header a/],
    ['a value with another control', { headers: { a: 'b\x1bc' } }, /the header a/],
    ['a value above U+00FF', { headers: { a: '😀' } }, /the header a/],
    ['a BigInt', { headers: { etag: 7n } }, /the header etag/],
    ['NaN', { headers: { etag: Number.NaN } }, /the header etag/],
    ['an object', { headers: { etag: {} } }, /the header etag/],
    ['a list as a value', { headers: { etag: ['1'] } }, /the header etag/],
    ['a symbol', { headers: { etag: Symbol('1') } }, /the header etag/],
    ['text for a list of values', { multiValueHeaders: { a: 'b' } }, /must be a list/],
    ['a LF in a list of values', { multiValueHeaders: { a: ['b', 'c\n'] } }, /the header a/],
    ['null in a list of values', { multiValueHeaders: { a: [null] } }, /the header a/],
    ['cookies that are text', { cookies: 'a=1' }, /cookies: must be a list/],
    ['cookies that are null', { cookies: null }, /cookies: must be a list/],
    ['a cookie with a line break', { cookies: ['a=1\r\nb: c'] }, /cookies/],
    ['isBase64Encoded that is text', { isBase64Encoded: 'true' }, /isBase64Encoded/],
    ['a BigInt elsewhere', { extra: 1n }, /what JSON can carry/],
  ])('headers that are %s are refused (C124, core 3)', (_, part, message) => {
    const judge = () => toResponse({ statusCode: 200, body: 'x', ...part } as never);
    expect(judge).toThrow(TypeError);
    expect(judge).toThrow(message);
  });

  test('a cycle is refused, and none of its values is shown (C124)', () => {
    const cycle: Record<string, unknown> = { statusCode: 200, secret: 'hunter2' };
    cycle['self'] = cycle;
    expect(() => toResponse(cycle as never)).toThrow(/what JSON can carry/);
  });

  test('a response that Lambda would not send is refused before it counts (core 3)', () => {
    const of = (length: number) => ({ statusCode: 200, body: 'x'.repeat(length) });
    const frame = JSON.stringify(of(0)).length;
    expect(toResponse(of(RESPONSE_BYTES_MAX - frame)).body).toHaveLength(
      RESPONSE_BYTES_MAX - frame,
    );
    expect(() => toResponse(of(RESPONSE_BYTES_MAX - frame + 1))).toThrow(/6 MB/);
    // It is the bytes of the JSON that count: an escape has six.
    const escapes = { statusCode: 200, body: '\0'.repeat(RESPONSE_BYTES_MAX / 6) };
    expect(() => toResponse(escapes)).toThrow(/6 MB/);
  });

  test('the first answer has no second value of what a replay sends once (core 24)', () => {
    const judged = toResponse({
      statusCode: 201,
      headers: { location: '/a' },
      multiValueHeaders: { Location: ['/b'], ETag: ['"1"', '"2"'], Link: ['</a>', '</b>'] },
    });
    expect(judged).toEqual({
      statusCode: 201,
      headers: { location: '/a' },
      multiValueHeaders: { ETag: ['"1"'], Link: ['</a>', '</b>'] },
    });
  });
});

describe('the headers that others have put on an answer that is replaced', () => {
  const answer = { statusCode: 201, headers: { ETag: '"1"' }, body: 'x' };

  test('they are kept where they belong to the exchange', () => {
    const other = {
      statusCode: 200,
      headers: {
        'Access-Control-Allow-Origin': '*',
        etag: '"2"',
        'Set-Cookie': 'a=1',
        'Retry-After': '1',
        'Content-Type': 'text/plain',
        'Content-Length': '7',
        'Idempotency-Replayed': 'true',
      },
      multiValueHeaders: { Vary: ['Origin'] },
      cookies: ['b=2'],
      body: 'y',
    };
    expect(withHeadersOf(other, answer)).toEqual({
      ...answer,
      headers: { 'Access-Control-Allow-Origin': '*', ETag: '"1"' },
      multiValueHeaders: { Vary: ['Origin'] },
    });
  });

  test.each([undefined, null, 'text', 7, {}, { headers: null }])('%j has none of them', (other) => {
    expect(withHeadersOf(other, answer)).toEqual(answer);
  });
});
