import { describe, expect, test } from 'vitest';
import { NO_CACHE } from '../../shared/index.ts';
import { idempotency, problemResponses } from '../../shared/lambda/index.ts';
import {
  type MutationParts,
  mutationHandler,
  queryHandler,
} from '../../shared/service/handlers.ts';
import { createLogger } from '../../shared/service/logger.ts';
import { createMeter } from '../../shared/service/metrics.ts';
import { REQUESTS } from '../../shared/service/settings/requests.ts';

const GOOD = {
  store: { begin: async () => ({ kind: 'late' }) },
  cache: NO_CACHE,
  keyMode: 'required',
  storedBodyBytesMax: 1000,
  answerMarginMs: 1000,
  requestTimeoutMs: 10_000,
  report: () => {},
};

/** As JavaScript calls it. */
const made = (changed: object) => () => idempotency({ ...GOOD, ...changed } as never);

describe('idempotency() judges its options when it is made (library S12)', () => {
  test('right options are accepted, with and without what may be left out', () => {
    expect(made({})).not.toThrow();
    expect(
      made({
        cacheMode: 'parallel',
        keyMode: 'optional',
        issuerAliases: { 'https://one.example/': 'one' },
        bodyBytesMax: 1,
        stateUrl: '/state',
        problemBaseUrl: 'https://p.example/',
      }),
    ).not.toThrow();
    expect(made({ cacheMode: undefined, stateUrl: undefined })).not.toThrow();
  });

  test.each<[object, RegExp]>([
    [{ keyMode: undefined }, /keyMode must be 'required' or 'optional', and was given undefined/],
    [{ keyMode: 'require' }, /keyMode must be 'required' or 'optional', and was given "require"/],
    [{ keyMode: true }, /keyMode .* was given true/],
    [{ cacheMode: 'paralel' }, /cacheMode must be 'first' or 'parallel'/],
    [{ store: undefined }, /store must have the methods begin, and was given undefined/],
    [{ store: {} }, /store .* was given an object without begin \(markerStore/],
    [{ store: new Map() }, /store .* was given a Map without begin/],
    [{ store: Promise.resolve(GOOD.store) }, /store was given a Promise: await it first/],
    [{ cache: undefined }, /cache .*NO_CACHE does without Redis/],
    [{ cache: {} }, /cache .* without claim/],
    [{ cache: Promise.resolve(NO_CACHE) }, /cache was given a Promise/],
    [{ storedBodyBytesMax: undefined }, /storedBodyBytesMax must be a number above 0/],
    [{ storedBodyBytesMax: '1000' }, /storedBodyBytesMax .* was given a string/],
    [{ bodyBytesMax: 0 }, /bodyBytesMax .* was given 0/],
    [{ answerMarginMs: Number.NaN }, /answerMarginMs .* was given NaN/],
    [{ answerMarginMs: -1 }, /answerMarginMs .* was given -1/],
    [{ requestTimeoutMs: Number.POSITIVE_INFINITY }, /requestTimeoutMs .* was given Infinity/],
    [{ issuerAliases: { a: 1 } }, /issuerAliases must be an object of strings/],
    [{ issuerAliases: 'a' }, /issuerAliases/],
    [{ stateUrl: 7 }, /stateUrl must be a string/],
    [{ problemBaseUrl: new URL('https://p.example/') }, /problemBaseUrl .* was given a URL/],
    [{ report: undefined }, /report must be a function/],
    [{ keymode: 'optional' }, /there is no keymode; the options are .*keyMode/],
    [{ retentionMs: 1 }, /there is no retentionMs/],
  ])('the options %j are refused', (changed, message) => {
    expect(made(changed)).toThrow(TypeError);
    expect(made(changed)).toThrow(message);
  });

  test('every fault is named at once, and no text that may be secret is shown', () => {
    const url = 'postgres://app:hunter2@db/app';
    expect(made({ store: url, keyMode: undefined, stateUrl: 1 })).toThrow(
      /store .* a string .*keyMode .*stateUrl/,
    );
    expect(made({ store: url })).not.toThrow(/hunter2/);
  });

  test.each([undefined, null, 'optional', 7])('%j is no options', (options) => {
    expect(() => idempotency(options as never)).toThrow(/options must be an object/);
  });
});

describe('the options of problemResponses()', () => {
  test('problemResponses() needs no options', () => {
    expect(() => problemResponses()).not.toThrow();
    expect(() => problemResponses({})).not.toThrow();
  });

  test.each([{ report: 1 }, { problemBaseUrl: 1 }, { reporter: () => {} }])(
    'the options %j are refused',
    (options) => {
      expect(() => problemResponses(options as never)).toThrow(TypeError);
    },
  );
});

describe('the options of a route', () => {
  const settings = { requests: REQUESTS.read({}) };
  const logger = createLogger('test');
  const parts = {
    settings,
    logger,
    meter: createMeter('test', 'test'),
    store: GOOD.store,
    cache: NO_CACHE,
  } as unknown as MutationParts<unknown>;
  const ROUTE = { name: 'spend-coins', body: undefined, stateUrl: '/', run: async () => {} };
  const mutation = (changed: object) => () =>
    mutationHandler({ ...ROUTE, ...changed } as never, parts);

  test.each<[object, RegExp]>([
    [{ name: undefined }, /name must be in kebab case/],
    [{ name: 'Spend coins' }, /name must be in kebab case/],
    [{ run: undefined }, /run must be a function/],
    [{ stateUrl: undefined }, /stateUrl must be a string/],
    [{ body: {} }, /body .*zod/],
    [{ keyMode: 'optional' }, /there is no keyMode/],
  ])('a mutation with %j is refused', (changed, message) => {
    expect(mutation({})).not.toThrow();
    expect(mutation(changed)).toThrow(message);
  });

  test.each([{ name: '' }, { run: 1 }, { isPublic: 'yes' }])('a query refuses %j', (changed) => {
    const query = (changed: object) => () =>
      queryHandler({ name: 'get-it', run: async () => {}, ...changed } as never, {
        settings,
        logger,
      });
    expect(query({})).not.toThrow();
    expect(query(changed)).toThrow(TypeError);
  });
});
