/**
 * The one place where an error of Postgres, or of the connection to it, becomes an outcome: first
 * its SQLSTATE gets a meaning, then the step at which it came says what that means for the request.
 */
import { DatabaseError } from 'pg';
import { ConfigError } from '../core/config-error.ts';
import { DeadlineError, LeaseLostError, type NotCommitted } from '../core/outcome.ts';

type Outcome = NotCommitted<never>;

/** What an SQLSTATE means. */
export type Meaning =
  /** IDM01: the key was used up before. */
  | 'key-used'
  /** IDM02: the deadline passed before the claim. */
  | 'deadline'
  /** A wait for a lock, or a statement, ran out of time. */
  | 'lock-timeout'
  /** Two transactions got into each other's way; the whole one may run again. */
  | 'conflict'
  /** The connection is gone, or this server does not serve us now. */
  | 'connection'
  /** A wrong statement, a violated constraint: trying again changes nothing. */
  | 'permanent';

const MEANINGS: Readonly<Record<string, Meaning>> = {
  IDM01: 'key-used',
  IDM02: 'deadline',
  IDM03: 'conflict', // publish_record: taken over
  '55P03': 'lock-timeout', // lock_not_available: lock_timeout
  '57014': 'lock-timeout', // query_canceled: statement_timeout
  '40001': 'conflict', // serialization_failure
  '40P01': 'conflict', // deadlock_detected
  '25006': 'connection', // read_only_sql_transaction: a reader, after a failover
  '25P03': 'connection', // idle_in_transaction_session_timeout
  '53300': 'connection', // too_many_connections
  '57P01': 'connection', // admin_shutdown: terminated by somebody
  '57P02': 'connection', // crash_shutdown
  '57P03': 'connection', // cannot_connect_now: starting or stopping
  '57P05': 'connection', // idle_session_timeout
};

/**
 * @returns undefined for an error that no database is to blame for: the work's own.
 */
export function meaningOf(error: unknown): Meaning | undefined {
  if (isDatabaseError(error)) {
    const code = error.code ?? '';
    // Of the server's own: a wrong number of values, a NUL. A pooler sends it as FATAL.
    if (code === '08P01' && error.severity === 'ERROR') return 'permanent';
    return MEANINGS[code] ?? (code.startsWith('08') ? 'connection' : 'permanent');
  }
  return isConnectionLoss(error) ? 'connection' : undefined;
}

/**
 * Did the server itself report that the statement failed, with the session still whole?
 *
 * Not in the classes 08 and 57P, whatever the severity: a proxy or pooler that has lost its
 * backend at COMMIT reports that as an error of its own, and knows no more than we do.
 */
export function isDefiniteFailure(error: unknown): boolean {
  return (
    isDatabaseError(error) && error.severity === 'ERROR' && !/^(?:08|57P)/.test(error.code ?? '')
  );
}

/** By name too: a bundle may hold a second copy of the class. */
function isDatabaseError(error: unknown): error is DatabaseError {
  return (
    error instanceof DatabaseError ||
    (error instanceof Error && 'severity' in error && 'code' in error && 'routine' in error)
  );
}

const SOCKET_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
]);

/** node-postgres has no error class or code for these, only their texts. */
const CLIENT_MESSAGES =
  /^(?:Connection terminated|Client has encountered a connection error|Client was closed|Query read timeout|timeout exceeded when trying to connect|timeout expired)/;

function isConnectionLoss(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code } = error as { code?: unknown };
  return (
    (typeof code === 'string' && SOCKET_CODES.has(code)) || CLIENT_MESSAGES.test(error.message)
  );
}

/** BEGIN itself failed: nothing was claimed, whatever the statements behind it answered. */
export class BeginError extends Error {
  override name = 'BeginError';

  constructor(cause: unknown) {
    super('BEGIN failed', { cause });
  }
}

/**
 * Is there no connection because of the configuration, or of a mistake in the program? Then
 * nothing is away that could come back, and trying again mends nothing.
 */
export function isFaultOfOurs(error: unknown): boolean {
  if (error instanceof ConfigError) return true;
  const isMistake =
    error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError;
  return isMistake && error.cause === undefined; // fetch throws a TypeError when the network is away.
}

/**
 * Why there is no connection. An unfit server is INTERNAL and not UNAVAILABLE: a client that is
 * told to try again each second mends nothing, and an alarm on outages would hide whose turn it
 * is. The key stays unused, so the same request works once the operator has mended it.
 */
export function outcomeAtConnect(cause: unknown): Outcome {
  return isFaultOfOurs(cause) ? { kind: 'failed', error: cause } : unavailable(cause);
}

/** Why step 0 failed. Nothing of this attempt can have taken effect. */
export function outcomeAtClaim(cause: unknown): Outcome {
  if (cause instanceof BeginError) return { kind: 'retryable', reason: 'connection', cause };
  switch (meaningOf(cause)) {
    case 'key-used':
      return { kind: 'rejected', code: 'ALREADY_EXISTS' };
    case 'deadline':
      return outcomeAtDeadline(cause);
    case 'lock-timeout':
      return { kind: 'rejected', code: 'ABORTED' };
    case 'conflict':
      return { kind: 'retryable', reason: 'conflict', cause };
    case 'connection':
      return { kind: 'retryable', reason: 'connection', cause };
    default:
      return { kind: 'failed', error: cause };
  }
}

/**
 * Why an attempt ended whose claim was good.
 *
 * `queryError`, the first that the transaction itself met, decides whether to try
 * again: the work may have wrapped it, or met a socket error of its own that is
 * none of ours.
 */
export function outcomeInWork(queryError: unknown, thrown: unknown): Outcome {
  switch (queryError === undefined ? undefined : meaningOf(queryError)) {
    case 'lock-timeout':
      return { kind: 'rejected', code: 'CONTENTION', cause: queryError };
    case 'conflict':
      return { kind: 'retryable', reason: 'conflict', cause: queryError };
    case 'connection':
      return { kind: 'retryable', reason: 'connection', cause: queryError };
    default:
      if (thrown instanceof DeadlineError) return outcomeAtDeadline(thrown);
      if (thrown instanceof LeaseLostError)
        return { kind: 'retryable', reason: 'conflict', cause: thrown };
      return { kind: 'failed', error: thrown };
  }
}

function outcomeAtDeadline(cause: unknown): Outcome {
  const late = cause instanceof DeadlineError ? cause : new DeadlineError('', { cause });
  return { kind: 'rejected', code: 'UNAVAILABLE', cause: late };
}

export function unavailable(cause: unknown) {
  return { kind: 'rejected', code: 'UNAVAILABLE', cause } as const;
}
