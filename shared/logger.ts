import { Logger } from '@aws-lambda-powertools/logger';

export type { Logger };

/** Structured JSON on stdout. Never a key, a token or a body: see `shortHash`. */
export function createLogger(serviceName: string): Logger {
  return new Logger({ serviceName });
}
