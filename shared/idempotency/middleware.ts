/**
 * The middy side of `once`. It computes who asks and for what, and puts one
 * function on the context; all that matters happens inside that function.
 */
import { randomUUID } from 'node:crypto';
import type { MiddlewareObj, Request } from '@middy/core';
import type { Context } from 'aws-lambda';
import { nowMs } from '../clock.ts';
import { readPrincipal } from '../http/principal.ts';
import { errorResponse, type HttpResponse, isRefusal, Problem } from '../http/problems.ts';
import { type HttpEvent, type HttpRequest, readRequest } from '../http/request.ts';
import type { Mutation, Unprotected, Work } from './contract.ts';
import { fingerprintOf } from './fingerprint.ts';
import { KEY_HEADER, readKey, shortHash } from './key.ts';
import { type OnceParts, runOnce, runUnprotected, type Verdict } from './once.ts';

/** Two-phase rollout: count first who sends no key, then insist. */
export type KeyMode = 'optional' | 'required';

/** Told once for each request that reached `once`, and for each that was turned away before it. */
export interface Report {
  readonly outcome: string;
  readonly layer: Verdict['layer'];
  readonly attempts: number;
  /** A short hash; the key itself never leaves the request. */
  readonly keyHash: string | undefined;
  readonly error?: unknown;
}

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
  report(report: Report): void;
}

/** Runs the work at most once for this request's key; resolves with its response, fresh or replayed. */
export type Once<Tx> = (work: Work<Tx>) => Promise<HttpResponse>;

export interface OnceContext<Tx> extends Context {
  once: Once<Tx>;
  /** Whom the authorizer proved. */
  principal: string;
  /** The request as it came in, whatever a parser has made of the event since. */
  http: HttpRequest;
}

type OnceRequest<Tx> = Request<HttpEvent, HttpResponse, Error, OnceContext<Tx>>;

interface State {
  isCalled: boolean;
  /** `once` has reported how the request ended. */
  isReported?: boolean;
  /** The response that `once` resolved with: from then on it is the answer. */
  final?: HttpResponse;
}

const STATES = new WeakMap<object, State>();

/**
 * Puts `once` on the context.
 *
 * @throws Problem UNAUTHENTICATED, KEY_REQUIRED, KEY_MALFORMED, in this order,
 * before any store is touched.
 */
export function idempotency<Tx>(
  options: IdempotencyOptions<Tx>,
): MiddlewareObj<HttpEvent, HttpResponse, Error, OnceContext<Tx>> {
  return {
    before: (request) => prepare(request, options),
    after: (request) => insistOnOnce(request, options),
    onError: (request) => keepFinal(request, options),
  };
}

function prepare<Tx>(request: OnceRequest<Tx>, options: IdempotencyOptions<Tx>): void {
  const state: State = { isCalled: false };
  STATES.set(request, state);
  const http = readRequest(request.event);
  const asked = identify(request, http, options);
  request.context.http = http;
  request.context.principal = asked.principal;
  request.context.once = async (work) => {
    if (state.isCalled) {
      throw new Error('once was called twice in one request: the second call did nothing');
    }
    state.isCalled = true;
    const running =
      asked.key === undefined
        ? runUnprotected(asked, work, options)
        : runOnce(mutationOf(asked, http), work, options);
    const keyHash = asked.key === undefined ? undefined : shortHash(asked.key); // While it waits.
    const verdict = await running;
    // Final before anyone can throw: it was committed.
    if ('response' in verdict) state.final = verdict.response;
    try {
      options.report(reportOf(verdict, keyHash)); // While L1 is told.
      state.isReported = true;
    } finally {
      await verdict.published;
    }
    if (!('response' in verdict)) throw verdict.error;
    return verdict.response;
  };
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
  if (key !== undefined) return { principal, key, deadlineMs };
  if (options.keyMode === 'required') {
    throw new Problem(
      'KEY_REQUIRED',
      `This request needs the header ${KEY_HEADER}: a new UUID for a new request, the same one when sending it again.`,
    );
  }
  options.report({ outcome: 'key_empty', layer: 'request', attempts: 0, keyHash: undefined });
  return { principal, deadlineMs };
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

function deadlineOf(
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
  const outcome =
    error instanceof Problem ? error.code.toLowerCase() : verdict.kind.replace('-', '_');
  return { outcome, layer, attempts, keyHash, ...(error !== undefined && { error }) };
}

/**
 * Two programming errors. A mutation that answers success without `once` is
 * unprotected, and must not pass for more. One that answers another status than
 * `once` gave would tell a retry something else than it told the first try.
 */
function insistOnOnce<Tx>(request: OnceRequest<Tx>, options: IdempotencyOptions<Tx>): void {
  const state = STATES.get(request);
  const status = request.response?.statusCode ?? 200;
  const complain = (outcome: string, message: string) => {
    const error = new Error(message);
    options.report({ outcome, layer: 'handler', attempts: 0, keyHash: undefined, error });
    return error;
  };
  if (state?.final && state.final.statusCode !== status) {
    complain(
      'response_changed',
      'The handler did not return the response of once; it was sent all the same.',
    );
    request.response = state.final;
  }
  if (state && !state.isCalled && !isRefusal(status)) {
    throw complain(
      'unprotected',
      'The handler answered with success and never called once: its effects are unprotected.',
    );
  }
}

/** Nothing after COMMIT may turn a success into a failure. */
function keepFinal<Tx>(request: OnceRequest<Tx>, options: IdempotencyOptions<Tx>): void {
  const final = STATES.get(request)?.final;
  if (!final) return;
  request.response = final;
  const { error } = request;
  const report = { outcome: 'threw_after_once', layer: 'handler', attempts: 0 } as const;
  try {
    options.report({ ...report, keyHash: undefined, error });
  } catch {
    // It may be the report itself that threw, and it was committed all the same.
  }
}

/**
 * Answers every error, as problem+json. The outermost middleware, so that nothing
 * leaves the Lambda as a thrown error: a gateway would make of it what it likes
 * (serverless-offline a 200).
 */
export function problemResponses(options: {
  readonly problemBaseUrl?: string | undefined;
  /** Told of each request that `once` has not reported itself. */
  report?(report: Report): void;
}): MiddlewareObj<HttpEvent, HttpResponse> {
  const report = (request: object, outcome: string, error?: unknown) => {
    if (STATES.get(request)?.isReported) return;
    options.report?.({ outcome, layer: 'request', attempts: 0, keyHash: undefined, error });
  };
  return {
    after: (request) => report(request, 'answered'),
    onError: (request) => {
      const { error } = request;
      report(request, error instanceof Problem ? error.code.toLowerCase() : 'threw', error);
      const final = STATES.get(request)?.final;
      // A hook that made a success of an error hides a failure: it is one again.
      const isAnswered = isRefusal(request.response?.statusCode ?? 0);
      if (final) request.response = final;
      else if (!isAnswered) request.response = errorResponse(error, options.problemBaseUrl);
    },
  };
}
