/**
 * The middy side of `once`. It computes who asks and for what, and puts one
 * function on the context; all that matters happens inside that function.
 */
import { randomUUID } from 'node:crypto';
import type { MiddlewareObj, Request } from '@middy/core';
import type { Context } from 'aws-lambda';
import { nowMs } from '../core/clock.ts';
import type { Cache, CacheMode, Mutation, Store, Unprotected, Work } from '../core/contract.ts';
import { shortHash } from '../core/loggable.ts';
import { type Ending, runOnce, runUnprotected } from '../core/once.ts';
import {
  aFunction,
  aPositiveNumber,
  aString,
  having,
  type Judge,
  judgeOptions,
  oneOf,
  optional,
  stringsByName,
} from '../core/options.ts';
import { type HttpCodec, httpCodec } from '../http/codec.ts';
import { KEY_HEADER, readKey } from '../http/key.ts';
import { type Answer, answerOf, asProblem } from '../http/outcome-response.ts';
import { readPrincipal } from '../http/principal.ts';
import { type HttpResponse, Problem } from '../http/problems.ts';
import { assertHttp, type HttpEvent, type HttpRequest, readRequest } from '../http/request.ts';
import { requestFingerprint } from '../http/request-fingerprint.ts';
import { withHeadersOf } from '../http/response.ts';
import { answerError, answerReturn, newState, reportFault, type State } from './handler-end.ts';
import { NO_REQUEST, type Report, reportOf, tell } from './reports.ts';

/** Two-phase rollout: count first who sends no key, then insist. */
export type KeyMode = 'optional' | 'required';

/** What a handler does in one transaction; see `Work`. A 4xx that it returns is a refusal. */
export type HttpWork<Tx> = Work<Tx, HttpResponse | Problem>;

export interface IdempotencyOptions<Tx> {
  readonly store: Store<Tx>;
  readonly cache: Cache;
  /** Default: `first`. */
  readonly cacheMode?: CacheMode | undefined;
  /** Larger bodies are not kept: a retry gets ALREADY_EXISTS. */
  readonly storedBodyBytesMax: number;
  /** Where a client whose key is used up finds the state that alone decides. */
  readonly stateUrl?: string | undefined;
  readonly problemBaseUrl?: string | undefined;
  readonly keyMode: KeyMode;
  /** Issuer URL → alias, where tokens of several issuers are accepted. */
  readonly issuerAliases?: Readonly<Record<string, string>> | undefined;
  /**
   * What must be left of the Lambda's time when COMMIT is sent: for its answer,
   * for finding out what became of it, and for the publish.
   */
  readonly answerMarginMs: number;
  /** The time a request has where no Lambda context tells it. */
  readonly requestTimeoutMs: number;
  /** Larger bodies are refused before anything reads them; default 262,144. */
  readonly bodyBytesMax?: number | undefined;
  report(report: Report): void;
}

/** Hashing JSON of a megabyte takes a second of a small Lambda's time. */
const BODY_BYTES_MAX = 262_144;

const JUDGES: Record<keyof IdempotencyOptions<unknown>, Judge> = {
  store: having(['begin'], 'markerStore, recordStore and dynamoStore make one'),
  cache: having(['claim'], 'redisClaimCache makes one; NO_CACHE does without Redis'),
  cacheMode: optional(oneOf('first', 'parallel')),
  keyMode: oneOf('required', 'optional'),
  issuerAliases: optional(stringsByName),
  answerMarginMs: aPositiveNumber,
  requestTimeoutMs: aPositiveNumber,
  bodyBytesMax: optional(aPositiveNumber),
  storedBodyBytesMax: aPositiveNumber,
  stateUrl: optional(aString),
  problemBaseUrl: optional(aString),
  report: aFunction,
};

/** Runs the work at most once for this request's key; resolves with its response, fresh or replayed. */
export type Once<Tx> = (work: HttpWork<Tx>) => Promise<HttpResponse>;

export interface OnceContext<Tx> extends Context {
  /**
   * Call it once, and return what it resolves with. Whatever the handler does besides, the
   * outcome of `once` is the answer.
   */
  once: Once<Tx>;
  /** Whom the authorizer proved. */
  principal: string;
  /** The request as it came in, whatever a parser has made of the event since. */
  http: HttpRequest;
}

type OnceRequest<Tx> = Request<HttpEvent, HttpResponse, Error, OnceContext<Tx>>;

/**
 * Puts `once` on the context. It stands inside of `problemResponses()` and before the body
 * parser; what changes bodies stands outside of it. No middleware's onError may throw: middy asks
 * nobody else after such a one. One that returns a value belongs outside as well.
 *
 * @throws TypeError at once, for options that cannot be.
 * Each request: Problem UNAUTHENTICATED, KEY_REQUIRED, KEY_MALFORMED, PAYLOAD_TOO_LARGE, in
 * this order, before any store is touched; NotHttpError, and Error for a body that is parsed
 * already.
 */
export function idempotency<Tx>(
  options: IdempotencyOptions<Tx>,
): MiddlewareObj<HttpEvent, HttpResponse, Error, OnceContext<Tx>> {
  judgeOptions('idempotency', options, JUDGES);
  const report = (told: Report) => options.report(told);
  const onCacheFailure = (error: unknown) =>
    tell(report, { outcome: 'cache_failed', layer: 'L1', ...NO_REQUEST, error });
  const parts: Parts<Tx> = {
    ...options,
    report,
    onCacheFailure,
    codec: httpCodec(options),
  };
  return {
    before: (request) => prepare(request, parts),
    after: (request) => answerReturn(request, parts),
    onError: (request) => {
      assertHttp(request.event); // Thrown once more, over what a hook may have answered.
      // Only what changes: to set it has the error answered anew (problemResponses).
      const problem = asProblem(request.error);
      if (problem !== request.error) request.error = problem as Error;
      return answerError(request, parts);
    },
  };
}

interface Parts<Tx> extends IdempotencyOptions<Tx> {
  readonly codec: HttpCodec;
  onCacheFailure(error: unknown): void;
}

function prepare<Tx>(request: OnceRequest<Tx>, parts: Parts<Tx>): void {
  const state = newState(request);
  const http = readRequest(request.event);
  const asked = identify(request, http, parts);
  request.context.http = http;
  request.context.principal = asked.principal;
  request.context.once = (work) => {
    const response = callOnce(state, parts, asked, async () =>
      asked.key === undefined
        ? runUnprotected(asked, work, parts)
        : runOnce(mutationOf(asked, http), work, parts),
    );
    // A handler that does not await it is answered all the same: no unhandled rejection.
    response.catch(() => {});
    return response;
  };
}

type Run = () => Promise<Ending<HttpResponse>>;

async function callOnce<Tx>(
  state: State,
  parts: Parts<Tx>,
  asked: Asked,
  run: Run,
): Promise<HttpResponse> {
  state.calls++;
  if (state.running) {
    throw new Error('once was called twice in one request: the second call did nothing');
  }
  if (state.isOver) {
    reportFault(parts.report, 'called_late');
    throw new Error('once was called after the handler had ended: nothing was done');
  }
  state.running = settle(state, parts, asked, run);
  const answer = await state.running;
  if ('error' in answer) throw answer.error;
  state.handed = withHeadersOf(undefined, answer.response);
  return state.handed;
}

/** Never rejects: the outcome, reported and published. */
async function settle<Tx>(
  state: State,
  { report, stateUrl }: Parts<Tx>,
  { key }: Asked,
  run: Run,
): Promise<Answer> {
  const running = run().catch(turnedAway);
  const keyHash = key === undefined ? undefined : shortHash(key); // Hash while the I/O is in flight.
  const ended = await running;
  const isAnswer = 'error' in ended;
  const answer = isAnswer
    ? ended
    : answerOf(ended.outcome, { stateUrl, isUnprotected: key === undefined });
  const ending = isAnswer ? undefined : ended;
  state.isReported = tell(report, reportOf(ending, answer, keyHash)); // Report while the publish is in flight.
  await ending?.published;
  state.answer = answer;
  return answer;
}

/** Before its claim, such as for a body that is nested too deep. */
function turnedAway(error: unknown): Extract<Answer, { error: unknown }> {
  return { error, isOfWork: !(error instanceof Problem) };
}

type Asked = Unprotected | Pick<Mutation, 'principal' | 'deadlineMs' | 'key'>;

/** Who asks, under which key, and until when; before anything reads the body. */
function identify<Tx>(
  { event, context }: OnceRequest<Tx>,
  http: HttpRequest,
  options: IdempotencyOptions<Tx>,
): Asked {
  const principal = readPrincipal(event, options.issuerAliases);
  if (principal === undefined) {
    throw new Problem('UNAUTHENTICATED', 'The request carries no proof of who sends it.');
  }
  const deadlineMs = deadlineOf(context, options);
  const key = readKey(http);
  if (key === undefined && options.keyMode !== 'optional') {
    throw new Problem(
      'KEY_REQUIRED',
      `This request needs the header ${KEY_HEADER}: a new UUID for a new request, the same one when sending it again.`,
    );
  }
  refuseTooLarge(http, options.bodyBytesMax);
  if (key !== undefined) return { principal, key, deadlineMs };
  tell(options.report, { outcome: 'key_empty', layer: 'request', ...NO_REQUEST });
  return { principal, deadlineMs };
}

function refuseTooLarge({ body }: HttpRequest, bytesMax = BODY_BYTES_MAX): void {
  if (body.length <= bytesMax) return;
  throw new Problem(
    'PAYLOAD_TOO_LARGE',
    `The body has ${body.length} bytes; at most ${bytesMax} are taken.`,
  );
}

/**
 * Only a request that got as far as `once` is hashed. `http` holds what came in,
 * whatever a parser or the handler has made of the event since.
 */
function mutationOf(
  { principal, key, deadlineMs }: Pick<Mutation, 'principal' | 'deadlineMs' | 'key'>,
  http: HttpRequest,
): Mutation {
  const fingerprint = requestFingerprint(principal, http);
  return { principal, key, endpoint: http.endpoint, fingerprint, token: randomUUID(), deadlineMs };
}

/** Up to when a request may run: what is left less the margin for its answer. */
export function deadlineOf(
  context: Partial<Context>,
  options: Pick<IdempotencyOptions<unknown>, 'requestTimeoutMs' | 'answerMarginMs'>,
): number {
  // 0 is a value (no time is left), not an absence.
  const leftMs = context.getRemainingTimeInMillis?.() ?? options.requestTimeoutMs;
  return nowMs() + leftMs - options.answerMarginMs;
}
