/** The contract: what a mutation, a store and a cache are, and the contract over HTTP. */

export { ConfigError } from './core/config-error.ts';
export {
  type FastPath,
  type FastPathMode,
  LeaseLostError,
  type Mutation,
  NO_FAST_PATH,
  type Store,
  type StoredResponse,
  type Work,
} from './core/contract.ts';
// Only until functions/ and test/ import the faces.
export * from './dynamodb/index.ts';
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
export * from './lambda/index.ts';
export * from './postgres/index.ts';
export * from './redis/index.ts';
export * from './service/index.ts';
