/**
 * The middy side of `once`. It computes who asks and for what, and puts one
 * function on the context; all that matters happens inside that function.
 */
import { randomUUID } from 'node:crypto';
import type { MiddlewareObj, Request } from '@middy/core';
import type { Context } from 'aws-lambda';
import { nowMs } from '../core/clock.ts';
import type { Mutation, Unprotected, Work } from '../core/contract.ts';
import { fingerprintOf } from '../core/fingerprint.ts';
import { guardedFastPath } from '../core/guarded-cache.ts';
import { type OnceParts, runOnce, runUnprotected, type Verdict } from '../core/once.ts';
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
import { KEY_HEADER, readKey, shortHash } from '../http/key.ts';
import { readPrincipal } from '../http/principal.ts';
import { type HttpResponse, Problem } from '../http/problems.ts';
import { type HttpEvent, type HttpRequest, insistOnHttp, readRequest } from '../http/request.ts';
import { withHeadersOf } from '../http/response.ts';
import { answerError, answerReturn, complain, newState, type State } from './handler-end.ts';
import { NO_REQUEST, problemOutcome, type Report, tell } from './reports.ts';

/** Two-phase rollout: count first who sends no key, then insist. */
export type KeyMode = 'optional' | 'required';

export interface IdempotencyOptions<Tx> extends OnceParts<Tx> {
  readonly keyMode: KeyMode;
  /** Issuer URL → alias, where tokens of several issuers are accepted. */
  readonly issuerAliases?: Readonly<Record<string, string>> | undefined;
  /**
   * What must be left of the Lambda's time when COMMIT is sent: for its answer,
   * for finding out what became of it, and for the publish.
   */
  readonly answerMarginMs: number;
  /** The time a request has where there is no Lambda to say. */
  readonly requestTimeoutMs: number;
  /** Larger bodies are refused before anything reads them; 262,144 where it is not said. */
  readonly bodyBytesMax?: number | undefined;
  report(report: Report): void;
}

/** Hashing JSON of a megabyte takes a second of a small Lambda's time. */
const BODY_BYTES_MAX = 262_144;

const JUDGES: Record<keyof IdempotencyOptions<unknown>, Judge> = {
  store: having(['begin'], 'markerStore, recordStore and dynamoStore make one'),
  fastPath: having(
    ['claim', 'publish', 'release'],
    'redisFastPath makes one; NO_FAST_PATH does without Redis',
  ),
  fastPathMode: optional(oneOf('first', 'parallel')),
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
export type Once<Tx> = (work: Work<Tx>) => Promise<HttpResponse>;

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
  const parts = { ...options, fastPath: guardedFastPath(options.fastPath, report), report };
  return {
    before: (request) => prepare(request, parts),
    after: (request) => answerReturn(request, parts),
    onError: (request) => {
      insistOnHttp(request.event); // Thrown once more, over what a hook may have answered.
      return answerError(request, parts);
    },
  };
}

function prepare<Tx>(request: OnceRequest<Tx>, options: IdempotencyOptions<Tx>): void {
  const state = newState(request);
  const http = readRequest(request.event);
  const asked = identify(request, http, options);
  request.context.http = http;
  request.context.principal = asked.principal;
  request.context.once = (work) => {
    const answer = callOnce(
      state,
      options,
      () =>
        asked.key === undefined
          ? runUnprotected(asked, work, options)
          : runOnce(mutationOf(asked, http), work, options),
      asked.key,
    );
    // Whoever does not wait for it hears its outcome as the answer: never an unhandled rejection.
    answer.catch(() => {});
    return answer;
  };
}

async function callOnce<Tx>(
  state: State,
  { report }: IdempotencyOptions<Tx>,
  run: () => Promise<Verdict>,
  key: string | undefined,
): Promise<HttpResponse> {
  state.calls++;
  if (state.running) {
    throw new Error('once was called twice in one request: the second call did nothing');
  }
  if (state.isOver) {
    complain(report, 'called_late');
    throw new Error('once was called after the handler had ended: nothing was done');
  }
  state.running = settle(state, report, run, key);
  const verdict = await state.running;
  if (!('response' in verdict)) throw verdict.error;
  state.handed = withHeadersOf(undefined, verdict.response);
  return state.handed;
}

/** Never rejects: the outcome, reported, and with L1 told. */
async function settle(
  state: State,
  report: (report: Report) => void,
  run: () => Promise<Verdict>,
  key: string | undefined,
): Promise<Verdict> {
  const running = verdictOf(run);
  const keyHash = key === undefined ? undefined : shortHash(key); // While it waits.
  const verdict = await running;
  state.isReported = tell(report, reportOf(verdict, keyHash)); // While L1 is told.
  await verdict.published;
  state.verdict = verdict;
  return verdict;
}

async function verdictOf(run: () => Promise<Verdict>): Promise<Verdict> {
  try {
    return await run();
  } catch (error) {
    const kind = error instanceof Problem ? 'refused' : 'threw';
    return { kind, layer: 'request', attempts: 0, error } as Verdict;
  }
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
  const fingerprint = fingerprintOf(principal, http);
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

function reportOf(verdict: Verdict, keyHash: string | undefined): Report {
  const { layer, attempts } = verdict;
  const error = 'error' in verdict ? verdict.error : undefined;
  return {
    outcome: outcomeOf(verdict),
    layer,
    attempts,
    keyHash,
    ...(error !== undefined && { error }),
  };
}

function outcomeOf(verdict: Verdict): Report['outcome'] {
  if ('error' in verdict && verdict.error instanceof Problem) return problemOutcome(verdict.error);
  switch (verdict.kind) {
    case 'returned-5xx':
      return 'returned_5xx';
    case 'refused':
      return problemOutcome(verdict.error);
    default:
      return verdict.kind;
  }
}
