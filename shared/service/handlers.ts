/**
 * What a deployed function is made of: its route, and the middlewares around it in the
 * order of the contract. The composition roots say which store it runs on.
 */
import middy, { type MiddlewareObj } from '@middy/core';
import httpJsonBodyParser from '@middy/http-json-body-parser';
import type { Context } from 'aws-lambda';
import type { ZodMiniType } from 'zod/mini';
import type { Cache, Store } from '../core/contract.ts';
import { loggable } from '../core/loggable.ts';
import {
  aBoolean,
  aFunction,
  aString,
  having,
  type Judge,
  judgeOptions,
  optional,
} from '../core/options.ts';
import { type IfMatch, readIfMatch } from '../http/precondition.ts';
import { readPrincipal } from '../http/principal.ts';
import { type HttpResponse, Problem } from '../http/problems.ts';
import { type HttpEvent, type HttpRequest, readRequest } from '../http/request.ts';
import { deadlineOf, idempotency, type Once, type OnceContext } from '../lambda/middleware.ts';
import { problemResponses } from '../lambda/problem-responses.ts';
import { isOurFault, type Report } from '../lambda/reports.ts';
import type { Tx } from '../postgres/transaction.ts';
import { spellContentType, validateBody } from './body.ts';
import type { Logger } from './logger.ts';
import type { Meter } from './metrics.ts';
import { REQUEST_TIMEOUT_MS, type RequestSettings } from './settings/requests.ts';

export type Handler = (event: HttpEvent, context: Context) => Promise<HttpResponse>;

/** What a protected handler is given. */
export interface MutationInput<Body, Handle = Tx> {
  readonly principal: string;
  readonly body: Body;
  readonly request: HttpRequest;
  /** Undefined unless the route `judgesIfMatch`. */
  readonly ifMatch: IfMatch | undefined;
  readonly once: Once<Handle>;
}

/** A mutation, apart from the servers that it will run against. */
export interface MutationRoute<Body, Handle = Tx> {
  /** Kebab case; names the function in logs and in `BACKSTOP_KEY_MODE_…`. */
  readonly name: string;
  /** The shape of the JSON body; undefined for a request that has none. */
  readonly body: ZodMiniType<Body> | undefined;
  /** Where a client whose key is used up finds the state that decides. */
  readonly stateUrl: string;
  /**
   * The work compares the `ifMatch` of its input with the version of what it changes, and throws
   * VERSION_MISMATCH. Without it a request that carries an If-Match is refused: a client that
   * asks for a condition must not have it ignored.
   */
  readonly judgesIfMatch?: boolean;
  run(input: MutationInput<Body, Handle>): Promise<HttpResponse>;
}

export interface QueryInputOn<Served> {
  readonly principal: string;
  readonly request: HttpRequest;
  /** When the answer must be under way, on our clock. */
  readonly deadlineMs: number;
  /** What the function runs on. */
  readonly service: Served;
}

/** A request that changes nothing and so needs no key. */
export interface QueryRouteOn<Served, Input = QueryInputOn<Served>> {
  readonly name: string;
  /** Answers anybody; `principal` is empty then. */
  readonly isPublic?: boolean;
  run(input: Input): Promise<HttpResponse>;
}

/** What every handler of a process shares. */
export interface Shared {
  readonly settings: { readonly requests: RequestSettings };
  readonly logger: Logger;
}

export interface MutationParts<Handle> extends Shared {
  readonly meter: Meter;
  readonly store: Store<Handle>;
  readonly cache: Cache;
}

const A_NAME: Judge = (name) =>
  typeof name === 'string' && /^[a-z][a-z0-9]*(?:-[a-z0-9]+)*$/.test(name)
    ? undefined
    : 'must be in kebab case, such as spend-coins: it names the function in logs and settings';

const MUTATION: Record<keyof MutationRoute<unknown>, Judge> = {
  name: A_NAME,
  body: optional(
    having(['safeParse'], 'a schema of zod or zod/mini; undefined where there is no body'),
  ),
  stateUrl: aString,
  judgesIfMatch: optional(aBoolean),
  run: aFunction,
};

/**
 * Authentication, key and fingerprint, then the body: in the order of the contract.
 *
 * @throws TypeError for a route that cannot be.
 */
export function mutationHandler<Body, Handle>(
  route: MutationRoute<Body, Handle>,
  { settings: { requests }, logger, meter, store, cache }: MutationParts<Handle>,
): Handler {
  judgeOptions('A mutation', route, MUTATION);
  const protection = idempotency<Handle>({
    cache,
    cacheMode: requests.cacheMode,
    store,
    stateUrl: route.stateUrl,
    keyMode: requests.keyMode(route.name).value,
    issuerAliases: requests.issuerAliases,
    problemBaseUrl: requests.problemBaseUrl,
    answerMarginMs: requests.answerMarginMs,
    requestTimeoutMs: REQUEST_TIMEOUT_MS,
    bodyBytesMax: requests.bodyBytesMax,
    storedBodyBytesMax: requests.storedBodyBytesMax,
    report: (report) => record(route.name, report, logger, meter),
  });
  const stack = bare<Handle>()
    .use(outermost(route.name, requests, logger))
    .use(protection);
  if (route.body) {
    stack
      .use(spellContentType())
      .use(httpJsonBodyParser() as Step)
      .use(validateBody(route.body) as Step);
  }
  return stack.handler((event, { once, principal, http }) => {
    const ifMatch = readIfMatch(http);
    if (ifMatch !== undefined && !route.judgesIfMatch) throw unconditional();
    return route.run({ principal, once, request: http, ifMatch, body: event.body as never });
  }) as unknown as Handler;
}

function unconditional(): Problem {
  return new Problem(
    'PRECONDITION_MALFORMED',
    'This request changes nothing that has a version, so If-Match means nothing here. Send it without.',
  );
}

export function queryHandler<Served extends Shared>(
  route: QueryRouteOn<Served>,
  service: Served,
): Handler {
  judgeOptions('A query', route, { name: A_NAME, isPublic: optional(aBoolean), run: aFunction });
  const { settings, logger } = service;
  const { issuerAliases, answerMarginMs } = settings.requests;
  return bare()
    .use(outermost(route.name, settings.requests, logger))
    .handler((event, context) => {
      const principal = route.isPublic ? '' : readPrincipal(event, issuerAliases);
      if (principal === undefined) {
        throw new Problem('UNAUTHENTICATED', 'The request carries no proof of who sends it.');
      }
      const deadlineMs = deadlineOf(context, {
        requestTimeoutMs: REQUEST_TIMEOUT_MS,
        answerMarginMs,
      });
      return route.run({ principal, service, deadlineMs, request: readRequest(event) });
    }) as unknown as Handler;
}

/** Without middy's own early time-out, which answers while the handler runs on: `once` has a deadline. */
function bare<Handle = Tx>() {
  return middy<HttpEvent, HttpResponse, Error, OnceContext<Handle>>({ timeoutEarlyInMillis: 0 });
}

// biome-ignore lint/suspicious/noExplicitAny: a step that touches neither error nor context fits any stack.
type Step = MiddlewareObj<HttpEvent, HttpResponse, any, any>;

function outermost(name: string, { problemBaseUrl }: RequestSettings, logger: Logger): Step {
  const report = (report: Report) => record(name, report, logger);
  return problemResponses({ problemBaseUrl, report }) as Step;
}

/** One line for each request: how it ended, and which layer decided. */
function record(name: string, report: Report, logger: Logger, meter?: Meter): void {
  const { layer, outcome, attempts, keyHash, error } = report;
  const line = { function: name, layer, outcome, attempts, keyHash };
  if (isOurFault(error)) logger.error('request', { ...line, error: loggable(error) });
  else logger.info('request', line);
  if (outcome === 'key_empty') meter?.keyEmpty();
  else meter?.outcome(layer, outcome);
}
