/** Requests as fast-check makes them up: nearly valid ones, and garbage. */
import fc from 'fast-check';
import type { HttpEvent } from '../../shared/index.ts';

export interface FuzzedRequest {
  readonly mutation: 'spend' | 'transfer';
  readonly event: HttpEvent;
}

/** Bodies above this are refused; small, so that many of them cost little. */
export const BODY_BYTES_MAX = 8192;

const anyText = fc.string({ unit: 'binary', maxLength: 40 });

/** `usual` in about `weight` of 10 cases, else one of the others. */
function mostly<T>(weight: number, usual: fc.Arbitrary<T>, ...others: fc.Arbitrary<T>[]) {
  const rest = fc.oneof(...(others as [fc.Arbitrary<T>]));
  return fc.oneof({ weight, arbitrary: usual }, { weight: 10 - weight, arbitrary: rest });
}

// ─── keys ───

const poolKey = fc.nat(299).map((n) => `key-${n}`);

const key = mostly<string | undefined>(
  8,
  fc.oneof(poolKey, fc.uuid()),
  fc.oneof(poolKey, fc.uuid()).map((text) => ` "${text}" `),
  poolKey.map((text) => `${text}, "${text}"`),
  fc.tuple(poolKey, poolKey).map((keys) => keys.join(',')),
  fc.constant(undefined),
  fc.constantFrom(
    '',
    ' ',
    '""',
    '"',
    '"a',
    'a"b',
    '"a\\"b"',
    '"a\\b"',
    '"a";p=1',
    ',',
    'a:b',
    'a%3Ab',
  ),
  fc.integer({ min: 250, max: 400 }).map((length) => 'k'.repeat(length)),
  fc.string({ unit: 'grapheme-ascii', maxLength: 30 }),
  anyText,
);

// ─── bodies ───

const amountText = mostly(
  9,
  fc.integer({ min: 1, max: 12 }).map(String),
  fc.constantFrom('0', '-1', '-0', '1.5', '1.0', '2e0', '1e400', '-1e400', '01', '0x1', 'NaN'),
  fc.constantFrom('9007199254740991', '9007199254740992', '9223372036854775808', '1e20'),
  fc.constantFrom('null', 'true', '"1"', '""', '[1]', '{}', '{"__proto__":1}', '[[[[[]]]]]'),
  fc.integer({ min: 1000, max: 1_000_000 }).map(String),
  fc.json({ maxDepth: 2 }),
);

const oddString = fc.oneof(
  fc.constantFrom(
    '"\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\ud800"',
    '"\\x"',
    '"',
    '""',
    '"\n"',
  ),
  anyText.map((text) => JSON.stringify(text)),
  fc.integer({ min: 190, max: 300 }).map((length) => `"${'x'.repeat(length)}"`),
  fc.json({ maxDepth: 1 }),
);

function memberTexts(mutation: 'spend' | 'transfer', players: readonly string[]) {
  const amount = amountText.map((text) => `"amount":${text}`);
  const to = mostly(
    8,
    fc.constantFrom(...players).map((id) => JSON.stringify(id)),
    oddString,
  );
  const reason = mostly(8, fc.constantFrom('"a"', '"b"', '"é😀"'), oddString);
  const optional =
    mutation === 'spend' ? fc.option(reason, { freq: 3, nil: undefined }) : fc.constant(undefined);
  const odd = fc.oneof(
    fc.constantFrom(
      '"__proto__":{"amount":1}',
      '"constructor":{"prototype":1}',
      '"amount":0',
      '"userId":"x"',
    ),
    fc
      .tuple(anyText, fc.json({ maxDepth: 2 }))
      .map(([name, value]) => `${JSON.stringify(name)}:${value}`),
  );
  return fc
    .record({
      amount: mostly<string | undefined>(9, amount, fc.constant(undefined)),
      to:
        mutation === 'transfer'
          ? mostly<string | undefined>(9, to, fc.constant(undefined))
          : fc.constant(undefined),
      reason: optional,
      odd: mostly<string | undefined>(9, fc.constant(undefined), odd),
      isReversed: fc.boolean(),
    })
    .map(({ amount, to, reason, odd, isReversed }) => {
      const members = [amount, to && `"to":${to}`, reason && `"reason":${reason}`, odd].filter(
        (text) => text !== undefined,
      );
      return isReversed ? members.reverse() : members;
    });
}

/** Cuts a piece out of a text and puts another in: what a broken client or proxy sends. */
function damaged(text: fc.Arbitrary<string>): fc.Arbitrary<string> {
  const piece = fc.oneof(
    fc.constantFrom(
      '',
      '{',
      '}',
      '[',
      ']',
      '"',
      ',',
      ':',
      '\\',
      '\0',
      '\ufeff',
      '\ud800',
      '//',
      '{"a":',
    ),
    anyText,
  );
  return fc.tuple(text, fc.nat(60), fc.nat(4), piece).map(([text, at, length, piece]) => {
    const start = Math.min(at, text.length);
    return text.slice(0, start) + piece + text.slice(start + length);
  });
}

const deep = fc
  .tuple(fc.constantFrom('[', '{"a":', '[{"amount":'), fc.constantFrom(10, 64, 65, 1000))
  .map(([open, levels]) => open.repeat(levels));

const big = fc
  .integer({ min: BODY_BYTES_MAX - 50, max: BODY_BYTES_MAX + 50 })
  .map((bytes) => '{"amount":1}'.padEnd(bytes));

function bodyText(mutation: 'spend' | 'transfer', players: readonly string[]) {
  const nearlyValid = fc
    .tuple(memberTexts(mutation, players), fc.constantFrom('', ' ', '\n\t'))
    .map(([members, space]) => `{${space}${members.join(`${space},`)}${space}}`);
  return mostly<string | null | undefined>(
    9,
    nearlyValid,
    damaged(nearlyValid),
    fc.json(),
    anyText,
    deep,
    big,
    fc.constantFrom(null, undefined, '', '[]', 'null', '0', '"x"'),
  );
}

interface Encoded {
  readonly body: string | null | undefined;
  readonly isBase64Encoded: unknown;
}

const base64 = (bytes: string | Uint8Array) => Buffer.from(bytes as Uint8Array).toString('base64');

/** Plain or base64, said rightly, or not. */
function encoded(text: fc.Arbitrary<string | null | undefined>): fc.Arbitrary<Encoded> {
  const encode = (text: string | null | undefined) =>
    typeof text === 'string' ? base64(text) : text;
  return mostly<Encoded>(
    9,
    text.map((body) => ({ body, isBase64Encoded: false })),
    text.map((body) => ({ body: encode(body), isBase64Encoded: true })),
    text.map((body) => ({ body: encode(body), isBase64Encoded: false })),
    text.map((body) => ({ body, isBase64Encoded: true })),
    text.map((body) => ({ body, isBase64Encoded: undefined })),
    fc
      .uint8Array({ maxLength: 60 })
      .map((bytes) => ({ body: base64(bytes), isBase64Encoded: true })),
  );
}

// ─── headers ───

type Header = readonly [name: string, value: string | null | undefined];

function header(
  name: string,
  value: fc.Arbitrary<string | null | undefined>,
): fc.Arbitrary<Header> {
  const spelled = fc.constantFrom(name, name.toLowerCase(), name.toUpperCase());
  return fc.tuple(spelled, value);
}

const contentType = mostly<string | undefined>(
  9,
  fc.constantFrom('application/json', 'application/json; charset=utf-8', 'Application/JSON ; a=b'),
  fc.constantFrom(
    undefined,
    '',
    'text/plain',
    'application/jsonp',
    'application/vnd.a+json',
    'application/json,',
  ),
  anyText,
);

const ifMatch = mostly<string | undefined>(
  8,
  fc.constant(undefined),
  fc.nat(30).map((version) => `"${version}"`),
  fc.constantFrom('*', 'W/"1"', '"1", "2"', '"a,b"', '', '7', '*, "1"', '"NULL"', '"{"', '"\\"'),
  anyText,
);

const headerList = fc
  .record({
    key: header('Idempotency-Key', key),
    contentType: header('Content-Type', contentType),
    ifMatch: header('If-Match', ifMatch),
    others: fc.array(fc.tuple(anyText, fc.oneof(anyText, fc.constant(null))), { maxLength: 2 }),
  })
  .map(({ key, contentType, ifMatch, others }): Header[] =>
    [key, contentType, ifMatch, ...others].filter(([, value]) => value !== undefined),
  );

// ─── principals ───

/** Every authorizer of a payload version, and some that prove nothing. */
function contexts(
  payload: 1 | 2,
  principals: readonly string[],
): fc.Arbitrary<object | null | undefined> {
  const known = fc.constantFrom(...principals);
  const claims = (sub: unknown) => ({ claims: { sub, iss: 'x' } });
  const proven =
    payload === 2
      ? mostly<object>(
          7,
          known.map((sub) => ({ authorizer: { jwt: claims(sub) } })),
          known.map((principalId) => ({ authorizer: { lambda: { principalId } } })),
          known.map((userArn) => ({ authorizer: { iam: { userArn } } })),
        )
      : mostly<object>(
          7,
          known.map((sub) => ({ authorizer: claims(sub), identity: {} })),
          known.map((principalId) => ({ authorizer: { principalId } })),
          known.map((userArn) => ({ identity: { userArn } })),
        );
  const sub = fc.oneof(anyText, fc.constantFrom('', 'a\0', '\ud800', 'x'.repeat(1025), 7, null));
  return fc.oneof(
    { weight: 28, arbitrary: proven },
    {
      weight: 1,
      arbitrary: sub.map((sub) => ({ authorizer: { jwt: claims(sub), ...claims(sub) } })),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom(undefined, null, {}, { authorizer: null }, { http: null }),
    },
  );
}

// ─── events ───

const PATHS = { spend: '/players/me/coins/spend', transfer: '/transfers' };

const query = mostly(9, fc.constant(''), fc.webQueryParameters(), anyText);

type Parts = {
  readonly mutation: 'spend' | 'transfer';
  readonly headers: Header[];
  readonly headersAre: 'given' | null | undefined;
  readonly context: object | null | undefined;
  readonly query: string;
} & Encoded;

function eventV2({ mutation, headers, headersAre, context, query, ...body }: Parts): HttpEvent {
  const path = PATHS[mutation];
  return {
    version: '2.0',
    rawPath: path,
    rawQueryString: query,
    headers: headersAre === 'given' ? joined(headers) : headersAre,
    requestContext: context && { http: { method: 'POST', path }, ...context },
    ...body,
  } as unknown as HttpEvent;
}

/** As API Gateway does: lower case, and repeated fields in one. */
function joined(headers: Header[]): Record<string, string | null> {
  const values = new Map<string, string | null>();
  for (const [name, value] of headers) {
    const lower = name.toLowerCase();
    const before = values.get(lower);
    values.set(lower, before == null ? (value ?? null) : `${before},${value}`);
  }
  return Object.fromEntries(values);
}

function eventV1({ mutation, headers, headersAre, context, query, ...body }: Parts): HttpEvent {
  const isGiven = headersAre === 'given';
  const multi = new Map<string, unknown[]>();
  for (const [name, value] of headers) multi.set(name, [...(multi.get(name) ?? []), value]);
  return {
    httpMethod: 'POST',
    path: PATHS[mutation],
    headers: isGiven ? Object.fromEntries(headers) : headersAre,
    multiValueHeaders: isGiven ? Object.fromEntries(multi) : headersAre,
    queryStringParameters: query === '' ? null : { q: query },
    multiValueQueryStringParameters: query === '' ? null : { q: [query] },
    requestContext: context,
    ...body,
  } as unknown as HttpEvent;
}

/**
 * @param principals whom the authorizers prove, known to the service or not.
 * @param players who can be sent coins.
 */
export function fuzzedRequest(
  principals: readonly string[],
  players: readonly string[],
): fc.Arbitrary<FuzzedRequest> {
  const parts = (payload: 1 | 2, mutation: 'spend' | 'transfer') =>
    fc
      .record({
        mutation: fc.constant(mutation),
        headers: headerList,
        headersAre: fc.oneof(
          { weight: 50, arbitrary: fc.constant('given' as const) },
          { weight: 1, arbitrary: fc.constantFrom(null, undefined) },
        ),
        context: contexts(payload, principals),
        query,
        encoded: encoded(bodyText(mutation, players)),
      })
      .map(({ encoded, ...rest }) => {
        const all = { ...rest, ...encoded } as Parts;
        return { mutation, event: payload === 2 ? eventV2(all) : eventV1(all) };
      });
  return fc.oneof(parts(2, 'spend'), parts(2, 'transfer'), parts(1, 'spend'), parts(1, 'transfer'));
}
