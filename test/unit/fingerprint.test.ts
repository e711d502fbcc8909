import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { areComparable, canonicalJson } from '../../shared/core/fingerprint.ts';
import { type HttpEvent, type HttpRequest, readRequest } from '../../shared/http/request.ts';
import { requestFingerprint } from '../../shared/http/request-fingerprint.ts';
import { httpEvent, type RequestOptions, restEvent } from '../support/requests.ts';

const JSON_TYPE = 'application/json';

interface Parts {
  principal?: string;
  method?: string;
  path?: string;
  query?: [string, string][];
  body?: string | Buffer;
  type?: string;
}

function of({ principal = 'alice', type = JSON_TYPE, ...parts }: Parts): string {
  const request: HttpRequest = {
    method: parts.method ?? 'POST',
    path: parts.path ?? '/x',
    endpoint: 'POST /x',
    params: {},
    query: parts.query ?? [],
    header: (name) => (name.toLowerCase() === 'content-type' ? [type] : []),
    body: Buffer.from(parts.body ?? ''),
  };
  return requestFingerprint(principal, request);
}

const ofJson = (body: string) => of({ body });
const ofEvent = (event: HttpEvent) => requestFingerprint('alice', readRequest(event));

test('a fingerprint is SHA-256 over the version and each part with its length before it', () => {
  const hashed = Buffer.concat([
    Buffer.from([1]),
    Buffer.from('6:älice4:POST2:/x15:[["a b","1&2"]]13:{"a":1,"b":2}'),
  ]);
  const expected = `1:${createHash('sha256').update(hashed).digest('base64url')}`;
  const body = '{ "b": 2, "a": 1 }';
  expect(of({ principal: 'älice', query: [['a b', '1&2']], body })).toBe(expected);
});

describe('a JSON body counts by its meaning', () => {
  test('member order and white space do not count (C13)', () => {
    expect(ofJson('{"a":1,"b":2}')).toBe(ofJson('{"b":2,"a":1}'));
    expect(ofJson('{"a":1,"b":2}')).toBe(ofJson(' {\n"b" :\t2 , "a":1\r} '));
    expect(ofJson('{"o":{"a":1,"b":[{"c":1,"d":2}]}}')).toBe(
      ofJson('{"o":{"b":[{"d":2,"c":1}],"a":1}}'),
    );
  });

  test('array order counts (C13)', () => {
    expect(ofJson('[1,2]')).not.toBe(ofJson('[2,1]'));
    expect(ofJson('{"a":[{"b":1},{"b":2}]}')).not.toBe(ofJson('{"a":[{"b":2},{"b":1}]}'));
  });

  test('integer-like names are sorted as text, like others', () => {
    expect(ofJson('{"10":1,"9":2,"a":3}')).toBe(ofJson('{"a":3,"9":2,"10":1}'));
    expect(canonicalJson('{"9":2,"10":1}')).toBe('{"10":1,"9":2}');
  });

  test('names are sorted by UTF-16 code unit', () => {
    expect(canonicalJson('{"\uff5e":1,"😀":2,"z":3}')).toBe('{"z":3,"😀":2,"\uff5e":1}');
  });

  test.each([
    ['9007199254740993', '9007199254740992'],
    ['1.0', '1'],
    ['1e2', '100'],
    ['-0', '0'],
    ['1e400', '1e401'],
    ['0.1', '0.10'],
    ['1', '"1"'],
    ['0', 'false'],
    ['null', '"null"'],
    ['{}', '[]'],
    ['""', 'null'],
  ])('%s is not %s', (one, other) => {
    expect(ofJson(one)).not.toBe(ofJson(other));
    expect(ofJson(`{"a":[${one}]}`)).not.toBe(ofJson(`{"a":[${other}]}`));
  });

  test('a string counts by its characters, however they are spelled', () => {
    expect(ofJson('"\\u0061\\/\\n"')).toBe(ofJson('"a/\\u000a"'));
    expect(ofJson('"\\ud83d\\ude00"')).toBe(ofJson('"😀"'));
    expect(ofJson('"\\ud800"')).not.toBe(ofJson('"\\ud801"'));
    expect(ofJson('"\\ud800"')).not.toBe(ofJson('"\\ufffd"'));
    expect(ofJson('"\\ud800"')).not.toBe(ofJson('"\\\\ud800"'));
    // Composed and decomposed are different texts to everyone who stores them.
    expect(ofJson('"\\u00e9"')).not.toBe(ofJson('"e\\u0301"'));
  });

  test.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'text', 'source', ''])(
    'the name %j makes a member like others',
    (name) => {
      const text = (value: string) => `{"a":1,"${name}":${value}}`;
      expect(canonicalJson(text('{"x":1.50}'))).toContain(`"${name}":{"x":1.50}`);
      expect(ofJson(text('1'))).not.toBe(ofJson(text('2')));
      expect(ofJson(text('1'))).not.toBe(ofJson('{"a":1}'));
      expect(ofJson(text('{"a":1}'))).not.toBe(ofJson(text('{}')));
    },
  );

  test('an object that looks like a number inside is not one', () => {
    expect(ofJson('{"text":"1"}')).not.toBe(ofJson('1'));
  });

  test.each([
    ['{"a":1,"a":2}', '{"a":2}'],
    ['{"a":[1],"a":2.0}', '{"a":2.0}'],
    ['{"a":1,"a":[2,3]}', '{"a":[2,3]}'],
    ['{"a":{"b":1.0},"a":{"b":2.00}}', '{"a":{"b":2.00}}'],
    ['{"a":{"0":1.0},"a":[2.0]}', '{"a":[2.0]}'],
    ['{"__proto__":1,"__proto__":2}', '{"__proto__":2}'],
  ])('the last of a repeated member counts: %s is %s', (text, canonical) => {
    expect(canonicalJson(text)).toBe(canonical);
  });

  test.each([
    'application/json; charset=utf-8',
    'Application/JSON',
    'application/merge-patch+json',
    'application/vnd.api+json;version=1',
  ])('JSON under the content type %s counts by its meaning too', (type) => {
    expect(of({ type, body: '{"a":1,"b":2}' })).toBe(of({ type, body: '{"b":2,"a":1}' }));
  });
});

describe('any other body counts by its bytes', () => {
  test.each(['text/plain', 'application/jsonp', 'text/json', 'application/octet-stream', ''])(
    'a body under the content type %j counts by its bytes',
    (type) => {
      expect(of({ type, body: '{"a":1}' })).not.toBe(of({ type, body: '{"a": 1}' }));
      expect(of({ type, body: '{"a":1}' })).toBe(of({ type, body: '{"a":1}' }));
    },
  );

  test('bytes that are no text count by themselves', () => {
    const type = 'application/octet-stream';
    expect(of({ type, body: Buffer.from([0xff, 0]) })).not.toBe(
      of({ type, body: Buffer.from([0xfe, 0]) }),
    );
  });

  test('a body that says it is JSON and is not counts by its bytes', () => {
    expect(canonicalJson('{"a":')).toBeUndefined();
    expect(canonicalJson('')).toBeUndefined();
    expect(ofJson('{"a":')).not.toBe(ofJson('{"a": '));
    expect(ofJson('{"a":')).toBe(ofJson('{"a":'));
  });

  test('no two bodies of JSON that is not UTF-8 become one through U+FFFD', () => {
    const text = (byte: number) =>
      Buffer.concat([Buffer.from('{"a":"'), Buffer.from([byte]), Buffer.from('"}')]);
    expect(of({ body: text(0xff) })).not.toBe(of({ body: text(0xfe) }));
    expect(of({ body: text(0xff) })).not.toBe(of({ body: '{"a":"\ufffd"}' }));
  });
});

describe('the depth of JSON', () => {
  const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);
  const invalid = expect.objectContaining({ code: 'BODY_INVALID' });

  test('64 levels are accepted, and 65 are BODY_INVALID', () => {
    expect(canonicalJson(nested(64))).toBe(nested(64));
    expect(() => ofJson(nested(65))).toThrow(invalid);
    expect(() => ofJson('{"a":['.repeat(33))).toThrow(invalid);
  });

  test.each(['[', '{"a":', '[{"a":'])(
    'a million levels of %s do not overflow the stack',
    (open) => {
      expect(() => ofJson(open.repeat(1_000_000))).toThrow(invalid);
    },
  );

  test('brackets count, and what looks like them in a string does not', () => {
    const text = JSON.stringify({ a: '['.repeat(100), b: `\\"${'{'.repeat(100)}` });
    expect(canonicalJson(text)).toBe(text);
    expect(() => ofJson(`{"\\\\":${'['.repeat(64)}`)).toThrow(invalid);
  });

  test('many values side by side are not depth', () => {
    const wide = `[${Array(1000).fill('[]').join(',')}]`;
    expect(canonicalJson(wide)).toBe(wide);
  });

  test('depth does not count where the body is not JSON', () => {
    expect(of({ type: 'text/plain', body: nested(65) })).toMatch(/^1:/);
  });
});

describe('the parts of a fingerprint', () => {
  const base = { principal: 'alice', method: 'POST', path: '/x', query: [], body: '{"a":1}' };

  test.each<[string, Parts]>([
    ['principal', { principal: 'bob' }],
    ['method', { method: 'PUT' }],
    ['path', { path: '/y' }],
    ['path, in case', { path: '/X' }],
    ['query', { query: [['a', '1']] }],
    ['body', { body: '{"a":2}' }],
    ['absence of a body', { body: '' }],
  ])('another %s is another request', (_, other) => {
    expect(of({ ...base, ...other } as Parts)).not.toBe(of(base as Parts));
  });

  test('the parts cannot slide into each other, wherever a text is cut', () => {
    const cuts = fc.uniqueArray(fc.nat(12), { minLength: 4, maxLength: 4 });
    const cut = (text: string, at: number[]) => {
      const [a, b, c, d] = [...at].sort((x, y) => x - y) as [number, number, number, number];
      return of({
        type: 'text/plain',
        principal: text.slice(0, a),
        method: text.slice(a, b),
        path: text.slice(b, c),
        query: [[text.slice(c, d), '']],
        body: text.slice(d),
      });
    };
    const text = fc.string({ unit: fc.constantFrom('a', '1', ':', '[', '"'), minLength: 12 });
    fc.assert(
      fc.property(text, cuts, cuts, (text, one, other) => {
        fc.pre([...one].sort().join() !== [...other].sort().join());
        expect(cut(text, one)).not.toBe(cut(text, other));
      }),
    );
  });
});

describe('the query of a request', () => {
  const query = (query: string) => ofEvent(httpEvent({ query, body: {} }));

  test('a query counts by its pairs, in whatever order', () => {
    expect(query('b=2&a=1')).toBe(query('a=1&b=2'));
    expect(query('a=x%20y')).toBe(query('a=x+y'));
  });

  test.each([
    ['a=1&b=2', 'a=1%26b=2'],
    ['a=1', 'a=2'],
    ['a=1', 'b=1'],
    ['a=1', 'a=1&a=1'],
    ['a=', ''],
    ['a=1&a=2', 'a=2&a=1'],
  ])('the query %j is not %j', (one, other) => {
    expect(query(one)).not.toBe(query(other));
  });
});

describe('how the request travelled does not count', () => {
  const request: RequestOptions = { key: 'K1', body: { a: 1, b: 'ä' } };
  const plain = ofEvent(httpEvent(request));

  test('base64 and plain text are the same body (C74)', () => {
    const rawBody = Buffer.from(JSON.stringify(request.body)).toString('base64');
    expect(ofEvent(httpEvent({ ...request, rawBody, isBase64Encoded: true }))).toBe(plain);
    expect(ofEvent(httpEvent({ ...request, rawBody }))).not.toBe(plain);
  });

  test('payloads 1.0 and 2.0 are the same request (C72)', () => {
    expect(ofEvent(restEvent(request))).toBe(plain);
    const withQuery = {
      ...restEvent(request),
      multiValueQueryStringParameters: { b: ['2', '1'], a: ['x y'] },
      queryStringParameters: { b: '1', a: 'x y' },
    } as HttpEvent;
    expect(ofEvent(withQuery)).toBe(ofEvent(httpEvent({ ...request, query: 'a=x+y&b=2&b=1' })));
  });

  test('another key or another header is the same request', () => {
    expect(ofEvent(httpEvent({ ...request, key: 'K2', headers: { 'x-trace': '1' } }))).toBe(plain);
  });
});

test('fingerprints of different versions are not compared', () => {
  expect(areComparable(ofJson('1'), ofJson('2'))).toBe(true);
  expect(areComparable('1:abc', '2:abc')).toBe(false);
  expect(areComparable('1:abc', '11:abc')).toBe(false);
});
