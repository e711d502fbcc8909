/**
 * How a handler ends, and what is answered then. A running `once` is the answer: whatever the
 * handler returns or throws beside it, the `once` that it called is waited for (its own
 * deadline bounds it), and its outcome decides. So nothing is acknowledged that was not
 * committed, and nothing denied that was.
 */
import type { Request } from '@middy/core';
import type { Context as LambdaContext } from 'aws-lambda';
import type { Answer } from '../http/outcome-response.ts';
import { errorResponse, type HttpResponse, isRefusal, Problem } from '../http/problems.ts';
import type { HttpEvent } from '../http/request.ts';
import { withAdditionsOf, withHeadersOf } from '../http/response.ts';
import { type HandlerFault, NO_REQUEST, type Reporter, tell } from './reports.ts';

/** What is known of one request's `once`. */
export interface State {
  calls: number;
  /** Set by the first call. Never rejects. */
  running?: Promise<Answer>;
  /** The outcome of `running`: from then on it is the answer. */
  answer?: Answer;
  /** The handler was handed this one, of its own: hooks may write into it. */
  handed?: HttpResponse;
  /** The handler has ended; a call of `once` after that does nothing. */
  isOver: boolean;
  /** A fault of the handler has been reported. */
  isJudged: boolean;
  /** `once` has reported how the request ended. */
  isReported: boolean;
}

const STATES = new WeakMap<object, State>();

export function stateOf(request: object): State | undefined {
  return STATES.get(request);
}

export function newState(request: object): State {
  if (STATES.has(request)) {
    throw new Error('idempotency() stands twice among the middlewares of this function: leave one');
  }
  const state: State = { calls: 0, isOver: false, isJudged: false, isReported: false };
  STATES.set(request, state);
  return state;
}

export interface Answering {
  readonly report: Reporter;
  readonly problemBaseUrl?: string | undefined;
}

/** After the handler has returned. */
export async function answerReturn<Context extends LambdaContext>(
  request: Request<HttpEvent, HttpResponse, Error, Context>,
  options: Answering,
): Promise<void> {
  const state = stateOf(request);
  if (!state) return;
  const isEarly = state.answer === undefined;
  state.isOver = true;
  const returned: unknown = request.response;
  if (!state.running) {
    if (!isRefused(returned)) throw unprotected(state, options);
    return;
  }
  const answer = await state.running;
  if ('response' in answer) {
    const isSame = isResponse(answer.response, returned, returned === state.handed);
    judge(state, options, isEarly ? 'not_awaited' : isSame ? undefined : 'response_changed');
    // Never the handler's own object: it may hold by now what JSON or HTTP cannot carry.
    const withOthers = isSame ? withAdditionsOf : withHeadersOf;
    request.response = withOthers(returned, answer.response);
    return;
  }
  // What the work itself threw, a handler may turn into a refusal of its own.
  const isTurned = answer.isOfWork && !isEarly && isRefused(returned);
  const fault = isRefused(returned) ? 'error_changed' : 'error_swallowed';
  judge(state, options, isEarly ? 'not_awaited' : isTurned ? undefined : fault, answer.error);
  if (!isTurned) throw answer.error;
}

/** After the handler, or a hook, has thrown. */
export async function answerError<Context extends LambdaContext>(
  request: Request<HttpEvent, HttpResponse, Error, Context>,
  options: Answering,
): Promise<void> {
  const state = stateOf(request);
  if (!state) return;
  const isEarly = state.answer === undefined;
  state.isOver = true;
  if (!state.running) return;
  const answer = await state.running;
  const { error } = request;
  if ('response' in answer) {
    judge(state, options, isEarly ? 'not_awaited' : 'threw_after_once', error);
    request.response = withHeadersOf(request.response, answer.response);
    return;
  }
  const isOwn = (error as unknown) === answer.error;
  const isTurned = answer.isOfWork && !isEarly;
  judge(
    state,
    options,
    isEarly ? 'not_awaited' : isOwn || isTurned ? undefined : 'error_changed',
    error,
  );
  if (!isOwn && !isTurned) request.error = answer.error as Error;
  const isStale = !isOwn && !isTurned && request.response !== undefined;
  if (!answer.isOfWork || isStale) {
    const problem = errorResponse(answer.error, options.problemBaseUrl);
    request.response = withHeadersOf(request.response, problem);
  } else if (!isRefused(request.response)) {
    // An error stays an error, whatever a hook has made of it.
    request.response = undefined as never;
  }
}

function isRefused(returned: unknown): boolean {
  const { statusCode } = (returned ?? {}) as { statusCode?: unknown };
  return typeof statusCode === 'number' && isRefusal(statusCode);
}

/**
 * Whether the answer is the response of `once`. Hooks inside of ours (cors) may have added
 * headers to it; that they have changed none can only be seen where the handler did not hand
 * on the very object.
 */
function isResponse(response: HttpResponse, returned: unknown, isHandedOn: boolean): boolean {
  const { statusCode, body, isBase64Encoded, headers } = (returned ?? {}) as Partial<HttpResponse>;
  const isSameAnswer =
    statusCode === response.statusCode &&
    (body ?? '') === (response.body ?? '') &&
    (isBase64Encoded ?? false) === (response.isBase64Encoded ?? false);
  if (!isSameAnswer) return false;
  return (
    isHandedOn ||
    Object.entries(response.headers ?? {}).every(([name, value]) => headers?.[name] === value)
  );
}

const FAULT_MESSAGES: Record<HandlerFault, string> = {
  unprotected:
    'The handler answered with success and never called once: its effects are unprotected.',
  not_awaited:
    'The handler ended while once was running: `return await once(…)`. Its outcome was waited for, and is the answer.',
  called_twice:
    'The handler called once twice in one request. The second call did nothing; the outcome of the first is the answer.',
  response_changed:
    'The handler, or a middleware inside of idempotency(), did not answer with the response of once; that was sent all the same. Return it as it is, and place what changes bodies outside.',
  error_swallowed:
    'The handler answered with success although once had failed. The failure of once is the answer: let it reject.',
  error_changed:
    'The handler answered with another error than the problem of once; that problem is the answer: let it reject.',
  called_late: 'The handler called once after it had ended and was answered: nothing was done.',
  threw_after_once:
    'The handler, or a middleware, threw after once had resolved. The response of once is the answer.',
};

/** Reports what the handler did, as one ERROR line. */
function judge(
  state: State,
  { report }: Answering,
  fault: HandlerFault | undefined,
  cause?: unknown,
): void {
  const outcome = state.calls > 1 ? 'called_twice' : fault;
  if (outcome === undefined || state.isJudged) return;
  state.isJudged = true;
  reportFault(report, outcome, cause);
}

export function reportFault(report: Reporter, outcome: HandlerFault, cause?: unknown): void {
  const error = new Error(FAULT_MESSAGES[outcome], { cause });
  tell(report, { outcome, layer: 'handler', ...NO_REQUEST, error });
}

function unprotected(state: State, options: Answering): Problem {
  judge(state, options, 'unprotected');
  state.isReported = true;
  // Its effects are unknown; the text of INTERNAL elsewhere is that nothing took effect.
  return new Problem(
    'INTERNAL',
    'The request failed for a reason of ours, and may have taken effect. Fetch the state: it alone decides.',
  );
}
