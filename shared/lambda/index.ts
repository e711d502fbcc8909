/** What stands before a handler on Lambda: the middlewares of middy, and what they report. */

export {
  type HttpWork,
  type IdempotencyOptions,
  idempotency,
  type KeyMode,
  type Once,
  type OnceContext,
} from './middleware.ts';
export { type ProblemResponsesOptions, problemResponses } from './problem-responses.ts';
export type { HandlerFault, Layer, OwnOutcome, Report, ReportedOutcome } from './reports.ts';
