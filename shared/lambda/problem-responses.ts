import type { MiddlewareObj } from '@middy/core';
import { aFunction, aString, judgeOptions, optional } from '../core/options.ts';
import { asProblem } from '../http/outcome-response.ts';
import { errorResponse, type HttpResponse, isRefusal, Problem } from '../http/problems.ts';
import { assertHttp, type HttpEvent, NotHttpError } from '../http/request.ts';
import { withHeadersOf } from '../http/response.ts';
import { stateOf } from './handler-end.ts';
import { NO_REQUEST, problemOutcome, type Report, reportToConsole, tell } from './reports.ts';

export interface ProblemResponsesOptions {
  readonly problemBaseUrl?: string | undefined;
  /**
   * Told of each request that `once` has not reported itself. Without it, the errors that
   * somebody must look at go to console.error.
   */
  report?: ((report: Report) => void) | undefined;
}

/**
 * Answers every error of an HTTP request, as problem+json: a gateway would make of a thrown
 * one what it likes (serverless-offline a 200). Where a hook answers an error with another
 * refusal, that stays, but for a Problem.
 *
 * What is no HTTP request is let out as a thrown NotHttpError.
 */
export function problemResponses(
  options: ProblemResponsesOptions = {},
): MiddlewareObj<HttpEvent, HttpResponse> {
  judgeOptions('problemResponses', options, {
    problemBaseUrl: optional(aString),
    report: optional(aFunction),
  });
  const { problemBaseUrl } = options;
  const reporter = (report: Report) => (options.report ?? reportToConsole)(report);
  const report = (request: object, outcome: Report['outcome'], error?: unknown) => {
    if (stateOf(request)?.isReported) return;
    tell(reporter, { outcome, layer: 'request', ...NO_REQUEST, error });
  };
  return {
    before: (request) => {
      assertHttp(request.event);
      if (stateOf(request)) {
        throw new Error('problemResponses() must come before idempotency(): it answers its errors');
      }
      answerAtOnce(request, problemBaseUrl);
    },
    after: (request) => report(request, 'answered'),
    onError: (request) => {
      assertHttp(request.event);
      // One that was thrown before ours, whose setter is not there yet, as well.
      const error = asProblem(request.error);
      report(request, error instanceof Problem ? problemOutcome(error) : 'failed', error);
      const final = committedResponse(request);
      // A hook that made a success of an error hides a failure: it is one again.
      const isAnswered = isRefusal(request.response?.statusCode ?? 0);
      if (final) request.response = withHeadersOf(request.response, final);
      else if (error instanceof Problem || !isAnswered) {
        request.response = withHeadersOf(request.response, answerTo(error, problemBaseUrl));
      }
    },
  };
}

/** What `once` has resolved with: from then on it is the answer. */
function committedResponse(request: object): HttpResponse | undefined {
  const answer = stateOf(request)?.answer;
  return answer && 'response' in answer ? answer.response : undefined;
}

interface Answered {
  error: Error | null | undefined;
  response: HttpResponse | null | undefined;
}

/**
 * Middy sets `request.error` before it calls the first onError hook. The answer is made at
 * that moment and not in a hook, so that cors finds it there wherever it stands, and
 * http-error-handler finds nothing left to do.
 */
function answerAtOnce(request: Answered, problemBaseUrl: string | undefined): void {
  let error: Error | null | undefined;
  Object.defineProperty(request, 'error', {
    configurable: true,
    enumerable: true,
    get: () => error,
    set: (thrown) => {
      error = asProblem(thrown) as typeof thrown;
      const committed = committedResponse(request);
      if (committed) keepResponse(request, committed);
      else if (!(thrown instanceof NotHttpError))
        request.response ??= answerTo(error, problemBaseUrl);
    },
  });
}

/**
 * A hook that answers an error ends middy's round of hooks, ours included, so what was committed
 * is kept in its place here: headers may be added to it, and nothing takes it away.
 */
function keepResponse(request: Answered, committed: HttpResponse): void {
  let response = withHeadersOf(undefined, committed);
  Object.defineProperty(request, 'response', {
    configurable: true,
    enumerable: true,
    get: () => response,
    set: (other) => {
      response = withHeadersOf(other, committed);
    },
  });
}

/** Also of an error that cannot be written: members that are no JSON, a getter that throws. */
function answerTo(error: unknown, problemBaseUrl: string | undefined): HttpResponse {
  try {
    return errorResponse(error, problemBaseUrl);
  } catch {
    return errorResponse(undefined, problemBaseUrl);
  }
}
