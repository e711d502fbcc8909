/**
 * Every problem the library answers with, and the only place where one of its
 * codes meets an HTTP status. Bodies are RFC 9457 `application/problem+json`.
 */
import { aBoolean, type Judge, judgeOptions } from '../core/options.ts';

export interface ProblemKind {
  readonly status: number;
  readonly title: string;
  /** May the client send the very same request again, with the same key? */
  readonly retryable: boolean;
}

export const PROBLEM_KINDS = {
  KEY_REQUIRED: { status: 400, title: 'Idempotency key required', retryable: false },
  KEY_MALFORMED: { status: 400, title: 'Idempotency key malformed', retryable: false },
  BODY_INVALID: { status: 400, title: 'Request body invalid', retryable: false },
  PRECONDITION_MALFORMED: { status: 400, title: 'If-Match malformed', retryable: false },
  UNAUTHENTICATED: { status: 401, title: 'Not authenticated', retryable: false },
  NOT_FOUND: { status: 404, title: 'Not found', retryable: false },
  ABORTED: { status: 409, title: 'Request still in progress', retryable: true },
  ALREADY_EXISTS: { status: 409, title: 'Idempotency key already used up', retryable: false },
  CONTENTION: { status: 409, title: 'Too many writers at once', retryable: true },
  VERSION_MISMATCH: { status: 412, title: 'State has changed', retryable: false },
  PAYLOAD_TOO_LARGE: { status: 413, title: 'Request body too large', retryable: false },
  UNSUPPORTED_MEDIA_TYPE: { status: 415, title: 'Unsupported media type', retryable: false },
  KEY_REUSED: { status: 422, title: 'Idempotency key reused', retryable: false },
  INTERNAL: { status: 500, title: 'Internal error', retryable: false },
  OUTCOME_UNKNOWN: { status: 503, title: 'Outcome unknown', retryable: true },
  UNAVAILABLE: { status: 503, title: 'Temporarily unavailable', retryable: true },
} as const satisfies Record<string, ProblemKind>;

export type ProblemCode = keyof typeof PROBLEM_KINDS;

export function isProblemCode(code: unknown): code is ProblemCode {
  return typeof code === 'string' && Object.hasOwn(PROBLEM_KINDS, code);
}

/** Only `defineProblems` adds to it, so no kind reaches a client unjudged. */
const DEFINED = new WeakSet<object>();

/** In the type alone, so that an object of the same shape is no such problem. */
declare const OWN: unique symbol;

/** A problem of a service's own, from `defineProblems`. `new Problem` takes it in place of a code. */
export interface OwnProblem<Code extends string = string> extends ProblemKind {
  readonly code: Code;
  readonly [OWN]: true;
}

const OWN_KIND: Readonly<Record<keyof ProblemKind, Judge>> = {
  status: (status) =>
    isClientError(status) && status !== PROBLEM_KINDS.KEY_REUSED.status
      ? undefined
      : 'must be an integer from 400 to 499 and not 422, which means KEY_REUSED and nothing else (a 5xx is a failure: throw an Error)',
  title: (title) =>
    typeof title === 'string' && title !== '' ? undefined : 'must be a text of a few words',
  retryable: aBoolean,
};

/**
 * Problems of a service's own, by code:
 *
 *     const { OUT_OF_STOCK } = defineProblems({
 *       OUT_OF_STOCK: { status: 409, title: 'Out of stock', retryable: false },
 *     });
 *     throw new Problem(OUT_OF_STOCK, 'There are two left.');
 *
 * @throws TypeError for a code of the library's own, a name that is not in capitals, or a kind
 * that cannot be.
 */
export function defineProblems<const Kinds extends Readonly<Record<string, ProblemKind>>>(
  kinds: Kinds & { readonly [Code in ProblemCode]?: never },
): { readonly [Code in keyof Kinds & string]: OwnProblem<Code> } {
  const defined = Object.entries(kinds).map(([code, kind]) => {
    const what = `defineProblems: ${code}`;
    if (isProblemCode(code)) {
      throw new TypeError(`${what}: the library has this code; choose another`);
    }
    if (!/^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*$/.test(code) || code.startsWith('HTTP_')) {
      throw new TypeError(
        `${what}: a code is in capitals, such as OUT_OF_STOCK; HTTP_… are the codes of other middlewares' errors`,
      );
    }
    judgeOptions(what, kind, OWN_KIND);
    const own = Object.freeze({ ...kind, code });
    DEFINED.add(own);
    return [code, own] as const;
  });
  return Object.fromEntries(defined) as ReturnType<typeof defineProblems<Kinds>>;
}

export interface ProblemOptions {
  /** Whole seconds. Only ever set where sending the same request again makes sense. */
  readonly retryAfterSeconds?: number | undefined;
  /** Overrides the code's own; an unprotected request is never safe to resend. */
  readonly retryable?: boolean | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Extension members of the problem body. */
  readonly members?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

/**
 * An error that is the client's answer. Throw it in a handler's work to roll the
 * mutation back and leave no trace of the key; return `problemResponse(…)`
 * instead to commit the refusal, so that a retry replays it.
 */
export class Problem extends Error {
  /** The library's, or one of `defineProblems`. */
  readonly code: ProblemCode | (string & Record<never, never>);
  readonly kind: ProblemKind;
  readonly detail: string;
  readonly options: ProblemOptions;
  /** With `expose`, what error handlers in the manner of http-errors go by. */
  readonly statusCode: number;
  readonly expose = true;
  readonly headers: Readonly<Record<string, string>>;

  constructor(problem: ProblemCode | OwnProblem, detail: string, options: ProblemOptions = {}) {
    const kind = kindOf(problem);
    const code = typeof problem === 'string' ? problem : problem.code;
    super(`${code}: ${detail}`, 'cause' in options ? { cause: options.cause } : undefined);
    this.name = 'Problem';
    this.code = code;
    this.kind = kind;
    this.detail = detail;
    this.options = options;
    this.statusCode = kind.status;
    const { retryAfterSeconds, headers } = options;
    this.headers = {
      ...(retryAfterSeconds !== undefined && { 'retry-after': String(retryAfterSeconds) }),
      ...headers,
    };
  }
}

function kindOf(problem: ProblemCode | OwnProblem): ProblemKind {
  if (isProblemCode(problem)) return PROBLEM_KINDS[problem];
  if (DEFINED.has(problem)) return problem;
  throw new TypeError(
    `Problem: there is no code ${JSON.stringify(problem)}; make one of your own with defineProblems, or use one of ${Object.keys(PROBLEM_KINDS).join(', ')}`,
  );
}

/** The shape API Gateway takes (payload 2.0; 1.0 takes the same less `cookies`). */
export interface HttpResponse {
  statusCode: number;
  headers?: Record<string, string | number | boolean>;
  multiValueHeaders?: Record<string, (string | number | boolean)[]>;
  cookies?: string[];
  body?: string;
  isBase64Encoded?: boolean;
}

/** A status that ends an exchange; 1xx come before it. */
export function isFinalStatus(status: unknown): status is number {
  return Number.isInteger(status) && Number(status) >= 200 && Number(status) <= 599;
}

/** A refusal or a failure: the mutation was not done. */
export function isRefusal(status: number): boolean {
  return status >= 400;
}

/** A failure of ours: it is never kept, so that a retry can do better. */
export function isFailure(status: number): boolean {
  return status >= 500;
}

export const DEFAULT_PROBLEM_BASE_URL = 'https://backstop.example/problems/';

/** A problem as the response that carries it. */
export function problemResponse(
  problem: Problem,
  baseUrl: string = DEFAULT_PROBLEM_BASE_URL,
): HttpResponse {
  const { kind } = problem;
  const { members, retryable } = problem.options;
  return {
    statusCode: kind.status,
    headers: {
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
      ...problem.headers,
    },
    body: JSON.stringify({
      type: baseUrl + problem.code.toLowerCase().replaceAll('_', '-'),
      title: kind.title,
      status: kind.status,
      detail: problem.detail,
      code: problem.code,
      retryable: retryable ?? kind.retryable,
      ...members,
    }),
  };
}

/**
 * The response to any error at all. Our own problems speak for
 * themselves; an HTTP error that another middleware threw keeps its status
 * (its 422 apart: that status means KEY_REUSED here and nothing else); the
 * rest is INTERNAL, and shows nothing of what is inside.
 */
export function errorResponse(error: unknown, baseUrl?: string): HttpResponse {
  if (error instanceof Problem) return problemResponse(error, baseUrl);
  const status = clientErrorStatus(error);
  if (status === undefined) {
    return problemResponse(
      new Problem('INTERNAL', 'The request failed for a reason of ours and took no effect.'),
      baseUrl,
    );
  }
  const detail = error instanceof Error ? error.message : 'The request was refused.';
  const code = status === 422 || status === 400 ? 'BODY_INVALID' : codeOfStatus(status);
  if (code) return problemResponse(new Problem(code, detail), baseUrl);
  return {
    statusCode: status,
    headers: { 'content-type': 'application/problem+json', 'cache-control': 'no-store' },
    body: JSON.stringify({
      type: 'about:blank',
      title: detail,
      status,
      detail,
      code: `HTTP_${status}`,
      retryable: false,
    }),
  };
}

/** The status of an error in the manner of http-errors, which middy's middlewares throw. */
export function clientErrorStatus(error: unknown): number | undefined {
  const status = (error as { statusCode?: unknown } | null)?.statusCode;
  return isClientError(status) ? status : undefined;
}

function isClientError(status: unknown): status is number {
  return isFinalStatus(status) && isRefusal(status) && !isFailure(status);
}

/** The one code that has this status, where exactly one has. */
function codeOfStatus(status: number): ProblemCode | undefined {
  const codes = (Object.keys(PROBLEM_KINDS) as ProblemCode[]).filter(
    (code) => PROBLEM_KINDS[code].status === status,
  );
  return codes.length === 1 ? codes[0] : undefined;
}
