/**
 * The contract: what a mutation, a store and a cache are, and the contract over HTTP. Loads
 * neither middy nor a driver; those have faces of their own.
 */

export { ConfigError } from './core/config-error.ts';
export {
  type Cache,
  type CacheClaim,
  type CacheLookup,
  type CacheMode,
  type Codec,
  type Completion,
  type Kept,
  type Mutation,
  NO_CACHE,
  type OpenTransaction,
  type Store,
  TOMBSTONE,
  type Unprotected,
  type Work,
} from './core/contract.ts';
export { type Ending, type OnceParts, runOnce, runUnprotected } from './core/once.ts';
export {
  type Committed,
  LeaseLostError,
  type NotCommitted,
  type Outcome,
  type Rejected,
  RejectedError,
  type RejectionCode,
} from './core/outcome.ts';
export { type HttpCodec, httpCodec, type KeptResponse } from './http/codec.ts';
export { json } from './http/json.ts';
export { acceptsVersion, type IfMatch, readIfMatch } from './http/precondition.ts';
export { readPrincipal } from './http/principal.ts';
export {
  defineProblems,
  type HttpResponse,
  type OwnProblem,
  PROBLEM_KINDS,
  Problem,
  type ProblemCode,
  type ProblemKind,
  type ProblemOptions,
  problemResponse,
} from './http/problems.ts';
export { type HttpEvent, type HttpRequest, NotHttpError, readRequest } from './http/request.ts';
