import { Logger } from '@aws-lambda-powertools/logger';
import { loggable } from '../core/loggable.ts';

export type { Logger };

/**
 * Structured JSON on stdout. Never a key, a token or a body: see `shortHash`, and `loggable`
 * for what is logged of an error.
 */
export function createLogger(serviceName: string): Logger {
  return new Logger({
    serviceName,
    jsonReplacerFn: (_name, value) => (value instanceof Error ? loggable(value) : value),
  });
}
