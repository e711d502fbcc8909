import { describe, expect, test } from 'vitest';
import { type HttpEvent, NotHttpError, readRequest } from '../../shared/http/request.ts';
import { httpEvent, restEvent } from '../support/requests.ts';

const event = (parts: object) => parts as HttpEvent;

/** Everything that the rest of the library can see of it. */
function seen(event: HttpEvent, ...headers: string[]) {
  const { method, path, query, body, header } = readRequest(event);
  return {
    method,
    path,
    query,
    body: body.toString(),
    headers: headers.map((name) => header(name)),
  };
}

describe.each([
  { payload: '2.0', eventOf: httpEvent },
  { payload: '1.0', eventOf: restEvent },
])('payload $payload (C72)', ({ eventOf }) => {
  test('a request is read whole', () => {
    const options = { method: 'POST', path: '/a/b', key: 'K1', body: { ä: 1 } };
    expect(seen(eventOf(options), 'Idempotency-Key', 'content-TYPE', 'x-none')).toEqual({
      method: 'POST',
      path: '/a/b',
      query: [],
      body: '{"ä":1}',
      headers: [['K1'], ['application/json'], []],
    });
  });

  test.each(['idempotency-key', 'IDEMPOTENCY-KEY', 'Idempotency-Key', 'iDEMPOTENCY-kEY'])(
    'the header %s is found under any case',
    (name) => {
      const sent = eventOf({ key: null, headers: { [name]: 'K1' } });
      expect(seen(sent, 'Idempotency-Key', 'idempotency-key').headers).toEqual([['K1'], ['K1']]);
    },
  );

  test('the parameters of the route are read as they were handed over', () => {
    const params = { id: 'a%2Fb', other: 'ä' };
    expect(readRequest(eventOf({ params })).params).toEqual(params);
  });

  test.each([null, undefined, {}, { id: undefined }])('%j are no parameters', (pathParameters) => {
    expect(readRequest(event({ ...eventOf({}), pathParameters })).params).toEqual({});
  });

  test.each([null, undefined, {}])('the headers %j are no headers', (headers) => {
    const sent = event({ ...eventOf({}), headers, multiValueHeaders: headers });
    expect(seen(sent, 'idempotency-key', 'content-type').headers).toEqual([[], []]);
  });

  test('a header whose value is null is absent', () => {
    const sent = event({
      ...eventOf({}),
      headers: { 'idempotency-key': null, 'if-match': undefined },
      multiValueHeaders: { 'idempotency-key': null, 'if-match': [null] },
    });
    expect(seen(sent, 'idempotency-key', 'if-match').headers).toEqual([[], []]);
  });

  test('an empty header is present and empty', () => {
    expect(seen(eventOf({ key: '  ' }), 'idempotency-key').headers).toEqual([['']]);
  });

  test('space and tab around a value are not part of it, and other white space is', () => {
    const sent = eventOf({ key: ' \tK1\t ', headers: { 'x-a': '\u00a0K1\u000b' } });
    expect(seen(sent, 'idempotency-key', 'x-a').headers).toEqual([['K1'], ['\u00a0K1\u000b']]);
  });

  test.each([null, undefined, ''])('the body %j is empty', (body) => {
    expect(readRequest(event({ ...eventOf({}), body })).body).toEqual(Buffer.alloc(0));
  });

  test('a base64 body is its bytes', () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    const sent = eventOf({ rawBody: bytes.toString('base64'), isBase64Encoded: true });
    expect(readRequest(sent).body).toEqual(bytes);
  });

  test('the method is upper case', () => {
    expect(seen(eventOf({ method: 'post' })).method).toBe('POST');
  });

  test.each([undefined, null, {}])('a request context of %j does no harm', (requestContext) => {
    const sent = event({ ...eventOf({ key: 'K1', body: 1 }), requestContext });
    expect(seen(sent, 'idempotency-key')).toMatchObject({ body: '1', headers: [['K1']] });
  });
});

describe('the endpoint is the method and the route, whatever the path', () => {
  const v2 = (routeKey: string | undefined) =>
    readRequest(event({ ...httpEvent({ method: 'PUT', path: '/things/7' }), routeKey })).endpoint;
  const v1 = (resource: string | undefined) =>
    readRequest(event({ ...restEvent({ method: 'PUT', path: '/things/7' }), resource })).endpoint;

  test('the endpoint of a payload 2.0 names its route', () => {
    expect(v2('PUT /things/{id}')).toBe('PUT /things/{id}');
    expect(v2('ANY /things/{id}')).toBe('PUT /things/{id}');
  });

  test('the endpoint of a payload 1.0 names its route', () => {
    expect(v1('/things/{id}')).toBe('PUT /things/{id}');
  });

  test('the endpoint is the path where no route is named', () => {
    expect([v2('$default'), v2(undefined), v1(undefined)]).toEqual(Array(3).fill('PUT /things/7'));
  });
});

describe('an event of payload 2.0', () => {
  test('a request context with parts missing does no harm (C72)', () => {
    for (const http of [null, {}, { method: null, path: null }]) {
      const sent = event({ ...httpEvent({ key: 'K1' }), requestContext: { http } });
      expect(seen(sent, 'idempotency-key')).toMatchObject({ method: '', headers: [['K1']] });
    }
  });

  test('the path is the raw one, else the context’s, else the root', () => {
    const sent = { ...httpEvent({ path: '/a%20b' }), rawPath: undefined };
    expect(seen(httpEvent({ path: '/a%20b' })).path).toBe('/a%20b');
    expect(seen(event(sent)).path).toBe('/a%20b');
    expect(seen(event({ requestContext: { http: { method: 'POST' } } })).path).toBe('/');
  });

  test('the query is decoded and sorted by name, and values of one name keep their order', () => {
    const { query } = readRequest(httpEvent({ query: 'b=2&a=x%20y&b=1&c&a=%26' }));
    expect(query).toEqual([
      ['a', 'x y'],
      ['a', '&'],
      ['b', '2'],
      ['b', '1'],
      ['c', ''],
    ]);
  });

  test('a missing query string is no query', () => {
    expect(seen(event({ ...httpEvent({}), rawQueryString: undefined })).query).toEqual([]);
  });
});

describe('an event of payload 1.0', () => {
  test('multiValueHeaders is the complete map', () => {
    const sent = event({
      ...restEvent({}),
      headers: { 'X-A': '2', 'X-B': '3' },
      multiValueHeaders: { 'X-A': ['1', '2'] },
    });
    expect(seen(sent, 'x-a', 'x-b').headers).toEqual([['1', '2'], ['3']]);
  });

  test.each([
    [
      { b: ['2', '1'], a: ['x'] },
      { b: '1', a: 'x' },
      [
        ['a', 'x'],
        ['b', '2'],
        ['b', '1'],
      ],
    ],
    [
      null,
      { b: '1', a: 'x' },
      [
        ['a', 'x'],
        ['b', '1'],
      ],
    ],
    [{ a: null }, null, []],
    [null, { a: undefined }, [['a', '']]],
    [null, null, []],
    [undefined, undefined, []],
  ])('the query is read from %j and %j', (multi, single, query) => {
    const sent = {
      ...restEvent({}),
      multiValueQueryStringParameters: multi,
      queryStringParameters: single,
    };
    expect(seen(event(sent)).query).toEqual(query);
  });

  test('an event with nothing in it but a method is an empty request (C72)', () => {
    expect(seen(event({ httpMethod: '' }), 'idempotency-key')).toEqual({
      method: '',
      path: '/',
      query: [],
      body: '',
      headers: [[]],
    });
  });
});

test.each<[string, unknown]>([
  ['SQS', { Records: [{ eventSource: 'aws:sqs', body: '{}' }] }],
  ['EventBridge', { version: '0', source: 'aws.events', detail: {} }],
  ['a WebSocket API', { requestContext: { eventType: 'MESSAGE', connectionId: '1' }, body: '{}' }],
  ['nobody', {}],
  ['null', null],
  ['undefined', undefined],
  ['text', 'POST /'],
  ['a number', 7],
  ['a list', []],
])('an event of %s is no HTTP request, and the error says so (library S10)', (_, sent) => {
  expect(() => readRequest(sent as HttpEvent)).toThrow(NotHttpError);
  expect(() => readRequest(sent as HttpEvent)).toThrow(/no HTTP request/);
});

describe('a body that is no text any more (core 13, library S5)', () => {
  test.each<[string, unknown]>([
    ['an object', { amount: 1 }],
    ['a list', [{ amount: 1 }]],
    ['an object with a length', { length: 2, amount: 1 }],
    ['bytes', Buffer.from('x')],
    ['a number', 7],
    ['false', false],
  ])('a body that is %s is refused, and the error says where the parser belongs', (_, body) => {
    for (const eventOf of [httpEvent, restEvent]) {
      expect(() => readRequest(event({ ...eventOf({}), body }))).toThrow(
        /idempotency\(\) must come before the body parser: it hashes the body as it was sent/,
      );
    }
  });
});
