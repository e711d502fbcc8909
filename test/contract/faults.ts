/** What can be wrong with a request for coins, whatever the route. */
import type { HttpEvent } from '../../shared/index.ts';
import type { RequestOptions } from '../support/requests.ts';
import { withHeaders } from './support.ts';

/** The service's default. */
export const BODY_BYTES_MAX = 262_144;

/** One thing wrong: `options` go into the event, then `change` has its way with it. */
export interface Fault {
  readonly options?: RequestOptions;
  readonly change?: (event: HttpEvent) => unknown;
  /** Of the good body; what comes out is sent as it is. */
  readonly spoil?: (good: string) => string;
}

const body = (spoil: (good: string) => string): Fault => ({ spoil });
const amount = (text: string): Fault =>
  body((good) => good.replace('"amount":10', `"amount":${text}`));
const key = (value: string | null): Fault => ({ options: { key: value } });
const headers = (changed: Record<string, string | undefined>): Fault => ({
  change: (event) => withHeaders(event, changed),
});
const parts = (changed: object): Fault => ({ change: (event) => ({ ...event, ...changed }) });
const bytes = (text: string | Buffer): Fault => ({
  options: { isBase64Encoded: true },
  spoil: () => Buffer.from(text).toString('base64'),
});

const MALFORMED_KEYS: [string, Fault][] = [
  ['empty', key('')],
  ['blank', key('   ')],
  ['an empty string', key('""')],
  ['a blank string', key('"   "')],
  ['256 characters', key('k'.repeat(256))],
  ['6,400 characters (C71)', key('k'.repeat(6400))],
  ['composed (C88)', key('caf\u00e9')],
  ['decomposed (C88)', key('cafe\u0301')],
  ['a NUL', key('a\0b')],
  ['a line feed', key('a\nb')],
  ['a space', key('a b')],
  ['two values in one field', key('K1, K2')],
  ['an open string', key('"K1')],
  ['a parameter', key('"K1";a=1')],
  ['half a surrogate pair', key('\ud800')],
];

const MISSING_KEYS: [string, Fault][] = [
  ['no header', key(null)],
  ['headers null (C72)', parts({ headers: null, multiValueHeaders: null })],
  ['no headers at all', parts({ headers: undefined, multiValueHeaders: undefined })],
  [
    'a value of null (C72)',
    parts({
      headers: { 'idempotency-key': null },
      multiValueHeaders: { 'Idempotency-Key': null },
    }),
  ],
];

const INVALID_BODIES: [string, Fault][] = [
  ['missing', parts({ body: undefined })],
  ['null (C72)', parts({ body: null })],
  ['empty', body(() => '')],
  ['white space', body(() => ' \n')],
  ['JSON null', body(() => 'null')],
  ['a list', body(() => '[]')],
  ['a list of the right one', body((good) => `[${good}]`)],
  ['a string', body(() => '"x"')],
  ['the right one, quoted', body((good) => JSON.stringify(good))],
  ['a number', body(() => '10')],
  ['true', body(() => 'true')],
  ['an empty object', body(() => '{}')],
  ['cut off', body((good) => good.slice(0, -1))],
  ['with more behind it', body((good) => `${good}}`)],
  ['two of them', body((good) => good + good)],
  ['a trailing comma', body((good) => good.replace('}', ',}'))],
  ['single quotes', body((good) => good.replaceAll('"', "'"))],
  ['a comment', body((good) => `${good}//`)],
  ['a byte order mark', body((good) => `\ufeff${good}`)],
  ['a NUL behind it', body((good) => `${good}\0`)],
  ['HTML', body(() => '<html></html>')],
  ['a form', body(() => 'amount=10')],
  ['an unknown member', body((good) => good.replace('}', ',"note":"x"}'))],
  ['a member in another case', body((good) => good.replace('amount', 'Amount'))],
  ['a member named like the principal', body((good) => good.replace('}', ',"userId":"x"}'))],
  ['__proto__', body((good) => good.replace('}', ',"__proto__":{"amount":1}}'))],
  ['constructor', body((good) => good.replace('}', ',"constructor":{"prototype":1}}'))],
  ['65 levels', amount('['.repeat(64) + ']'.repeat(64))],
  ['100,000 levels', body(() => '['.repeat(100_000) + ']'.repeat(100_000))],
  ['100,000 levels of members', body(() => '{"a":'.repeat(50_000))],
  ['base64 of nothing', { options: { isBase64Encoded: true }, spoil: () => '' }],
  ['base64 that is none', { options: { isBase64Encoded: true }, spoil: () => '!!!' }],
  ['JSON that says it is base64', { options: { isBase64Encoded: true } }],
  ['base64 that says it is JSON', body((good) => Buffer.from(good).toString('base64'))],
  ['base64 of a list', bytes('[]')],
  ['bytes that are no text', bytes(Buffer.from([0xff, 0xfe, 0x00]))],
  ['UTF-16', bytes(Buffer.from('{"amount":10}', 'utf16le'))],
];

const INVALID_AMOUNTS: [string, Fault][] = [
  ['0', amount('0')],
  ['-0', amount('-0')],
  ['-10', amount('-10')],
  ['1.5', amount('1.5')],
  ['1e-1', amount('1e-1')],
  ['1e400', amount('1e400')],
  ['-1e400', amount('-1e400')],
  ['2^53', amount('9007199254740992')],
  ['2^53 + 1', amount('9007199254740993')],
  ['2^63', amount('9223372036854775808')],
  ['1e20', amount('1e20')],
  ['text', amount('"10"')],
  ['empty text', amount('""')],
  ['null', amount('null')],
  ['true', amount('true')],
  ['a list', amount('[10]')],
  ['an object', amount('{}')],
  ['NaN', amount('NaN')],
  ['Infinity', amount('Infinity')],
  ['hexadecimal', amount('0x10')],
  ['a leading zero', amount('010')],
  ['a plus', amount('+10')],
  ['repeated, the last one wrong', body((good) => good.replace('}', ',"amount":0}'))],
];

const UNSUPPORTED_TYPES: [string, Fault][] = [
  ['missing', headers({ 'content-type': undefined })],
  ['empty', headers({ 'content-type': '' })],
  ['text/plain (C75)', headers({ 'content-type': 'text/plain' })],
  ['text/json', headers({ 'content-type': 'text/json' })],
  ['a form', headers({ 'content-type': 'application/x-www-form-urlencoded' })],
  ['almost JSON', headers({ 'content-type': 'application/jsonp' })],
  ['two in one field', headers({ 'content-type': 'application/json,application/json' })],
  ['text/plain of bytes', { ...headers({ 'Content-Type': 'text/plain' }), ...bytes('\xff') }],
];

const NO_PRINCIPALS: [string, Fault][] = [
  ['no authorizer', { options: { principal: undefined } }],
  ['an empty subject', { options: { principal: '' } }],
  ['a NUL in the subject', { options: { principal: 'a\0b' } }],
  ['half a surrogate pair in the subject', { options: { principal: '\ud800' } }],
  ['a subject of 1,025 bytes', { options: { principal: 'a'.repeat(1025) } }],
  ['no request context', parts({ requestContext: undefined })],
  ['a request context of null', parts({ requestContext: null })],
  ['an empty request context', parts({ requestContext: {} })],
  ['an authorizer of null', parts({ requestContext: { http: null, authorizer: null } })],
];

/** Every fault, under the refusal that it must meet. */
export const ALL: [status: number, code: string, what: string, faults: [string, Fault][]][] = [
  [400, 'KEY_MALFORMED', 'a key', MALFORMED_KEYS],
  [400, 'KEY_REQUIRED', 'a key', MISSING_KEYS],
  [400, 'BODY_INVALID', 'a body', INVALID_BODIES],
  [400, 'BODY_INVALID', 'an amount', INVALID_AMOUNTS],
  [415, 'UNSUPPORTED_MEDIA_TYPE', 'a content type', UNSUPPORTED_TYPES],
  [401, 'UNAUTHENTICATED', 'a principal', NO_PRINCIPALS],
];
