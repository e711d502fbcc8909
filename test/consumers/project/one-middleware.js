/** The middleware alone, in plain JavaScript: a store of one's own, and no driver. */
import middy from '@middy/core';
import { NO_CACHE } from 'lambda-backstop';
import { idempotency, problemResponses } from 'lambda-backstop/lambda';

/** @type {Map<string, string>} */
const keys = new Map();

/**
 * Keeps which keys were used, and no answers.
 * @type {import('lambda-backstop').Store<{ note(text: string): void }>}
 */
const store = {
  begin: async ({ principal, key }) => {
    const claim = `${principal} ${key}`;
    if (keys.has(claim)) return { kind: 'rejected', code: 'ALREADY_EXISTS' };
    /** @type {string[]} */
    const notes = [];
    return {
      tx: { note: (text) => notes.push(text) },
      claimed: Promise.resolve(),
      commit: async ({ kept }) => {
        keys.set(claim, notes.join());
        return { kind: 'committed', result: kept, expiresAtMs: undefined };
      },
      rollback: async (error) => ({ kind: 'failed', error }),
      cancel: async () => {},
    };
  },
};

/** @type {string[]} */
const outcomes = [];
const handler = middy({ timeoutEarlyInMillis: 0 })
  .use(problemResponses())
  .use(
    idempotency({
      store,
      cache: NO_CACHE,
      keyMode: 'required',
      answerMarginMs: 1000,
      requestTimeoutMs: 10_000,
      storedBodyBytesMax: 100_000,
      report: ({ outcome }) => outcomes.push(outcome),
    }),
  )
  .handler((_event, { once }) =>
    once(async (tx) => {
      tx.note('done');
      return { statusCode: 201 };
    }),
  );

/** @param {Record<string, string>} headers */
const post = async (headers) => {
  const http = { method: 'POST', path: '/notes' };
  const authorizer = { jwt: { claims: { sub: 'alice' } } };
  const requestContext = { http, authorizer };
  const event = { version: '2.0', rawPath: '/notes', rawQueryString: '', headers, requestContext };
  const { statusCode } = await handler(/** @type {any} */ (event), /** @type {any} */ ({}));
  return statusCode;
};

const statuses = [
  await post({ 'idempotency-key': 'one' }),
  await post({ 'idempotency-key': 'one' }),
  await post({}),
];
console.log(JSON.stringify({ node: process.versions.node, statuses, outcomes, keys: [...keys] }));
