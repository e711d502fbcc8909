/** What is reported of each request: the outcomes by name. */

import { loggable } from '../core/loggable.ts';
import type { Ending } from '../core/once.ts';
import type { Answer } from '../http/outcome-response.ts';
import {
  clientErrorStatus,
  type HttpResponse,
  isProblemCode,
  Problem,
  type ProblemCode,
} from '../http/problems.ts';

/**
 * What a handler did wrong. The answer is `once`'s own all the same: its response, or its
 * problem.
 */
export type HandlerFault =
  /** It answered with success and never called `once`; this one is answered 500. */
  | 'unprotected'
  /** It ended while `once` was running. */
  | 'not_awaited'
  | 'called_twice'
  /** It called `once` when it had ended already, and nothing was done. */
  | 'called_late'
  /** It (or a middleware inside of ours) answered something else than the response of `once`. */
  | 'response_changed'
  /** It answered with success although `once` had failed. */
  | 'error_swallowed'
  /** It answered with another error than `once`, which had refused. */
  | 'error_changed'
  /** It (or a middleware) threw although `once` had resolved. */
  | 'threw_after_once';

/**
 * A problem of `defineProblems`, as `own_out_of_stock`: so that it is never taken for an outcome of
 * the library, and a misspelt one of those is no `ReportedOutcome`.
 */
export type OwnOutcome = `own_${string}`;

/** How a request ended, as logs, metrics and alarms name it. */
export type ReportedOutcome =
  | 'committed'
  | 'replayed'
  /** The work returned a 5xx. */
  | 'returned_failure'
  /** The work, or something before it, threw what is no problem of the contract. */
  | 'failed'
  | Lowercase<ProblemCode>
  | OwnOutcome
  | HandlerFault
  /** Answered by something else than `once`. */
  | 'answered'
  /** Key mode `optional`, and no key. */
  | 'key_empty'
  /** A method of the cache rejected, which it must not; the request went on without it. */
  | 'cache_failed'
  /** A report threw. */
  | 'report_failed';

/** Which layer decided: L1 the cache, L2 the claim, L3 the version, `handler` the work itself. */
export type Layer = 'L1' | 'L2' | 'L3' | 'handler' | 'request';

/** Told once for each request that reached `once`, and for each that was turned away before it. */
export interface Report {
  readonly outcome: ReportedOutcome;
  readonly layer: Layer;
  readonly attempts: number;
  /** A short hash; the key itself never leaves the request. */
  readonly keyHash: string | undefined;
  readonly error?: unknown;
}

export type Reporter = (report: Report) => void;

export const NO_REQUEST = { attempts: 0, keyHash: undefined } as const;

export function problemOutcome({ code }: Problem): Lowercase<ProblemCode> | OwnOutcome {
  return isProblemCode(code)
    ? (code.toLowerCase() as Lowercase<ProblemCode>)
    : `own_${code.toLowerCase()}`;
}

/** @param ending undefined where the request was turned away before its claim. */
export function reportOf(
  ending: Ending<HttpResponse> | undefined,
  answer: Answer,
  keyHash: string | undefined,
): Report {
  const { attempts = 0 } = ending ?? {};
  const layer = layerOf(ending, answer);
  if (!('error' in answer)) return { outcome: nameOf(ending), layer, attempts, keyHash };
  const { error } = answer;
  const outcome = error instanceof Problem ? problemOutcome(error) : 'failed';
  return { outcome, layer, attempts, keyHash, error };
}

/** Of what is answered with a response. */
function nameOf(ending: Ending<HttpResponse> | undefined) {
  switch (ending?.outcome.kind) {
    case 'committed':
    case 'replayed':
      return ending.outcome.kind;
    default:
      return 'returned_failure';
  }
}

function layerOf(ending: Ending<HttpResponse> | undefined, answer: Answer): Layer {
  if (!ending) return 'request';
  const { outcome, decidedBy } = ending;
  if ('error' in answer && isVersionConflict(answer.error)) return 'L3';
  switch (outcome.kind) {
    case 'committed':
    case 'returned-failure':
    case 'failed':
      return 'handler';
    default:
      return decidedBy === 'cache' ? 'L1' : 'L2';
  }
}

function isVersionConflict(error: unknown): boolean {
  return (
    error instanceof Problem && (error.code === 'VERSION_MISMATCH' || error.code === 'CONTENTION')
  );
}

/** Reports what may be reported: a reporter that throws never changes an answer. */
export function tell(report: Reporter, told: Report): boolean {
  try {
    const telling: unknown = report(told);
    // One that is asynchronous, which the type does not keep out.
    if (telling instanceof Promise) telling.catch((error: unknown) => countFailure(report, error));
    return true;
  } catch (error) {
    countFailure(report, error);
    return false;
  }
}

function countFailure(report: Reporter, error: unknown): void {
  const failed: Report = { outcome: 'report_failed', layer: 'request', ...NO_REQUEST, error };
  try {
    const telling: unknown = report(failed);
    if (telling instanceof Promise) telling.catch(() => reportToConsole(failed));
  } catch {
    reportToConsole(failed);
  }
}

/** For whoever gives no reporter: the errors that somebody must look at. */
export function reportToConsole({ outcome, layer, error }: Report): void {
  // biome-ignore lint/suspicious/noConsole: there is no other place to report it.
  if (isOurFault(error)) console.error('backstop', { layer, outcome, error: loggable(error) });
}

/** A refusal is the client's: neither ours nor that of http-errors' kind is a fault. */
export function isOurFault(error: unknown): boolean {
  if (error === undefined) return false;
  if (error instanceof Problem) return Boolean(error.options.cause) || error.code === 'INTERNAL';
  return clientErrorStatus(error) === undefined;
}
