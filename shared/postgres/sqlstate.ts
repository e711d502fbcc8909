import { DatabaseError } from 'pg';

/** The one place where an SQLSTATE gets a meaning. */
export type Meaning =
  /** IDM01: the key was used up before. */
  | 'used'
  /** IDM02: the deadline passed before the claim. */
  | 'late'
  /** A wait for a lock, or a statement, ran out of time. */
  | 'waited'
  /** Two transactions got into each other's way; the whole one may run again. */
  | 'conflict'
  /** The connection is gone, or this server does not serve us now. */
  | 'connection'
  /** A wrong statement, a violated constraint: trying again changes nothing. */
  | 'permanent';

const MEANINGS: Readonly<Record<string, Meaning>> = {
  IDM01: 'used',
  IDM02: 'late',
  IDM03: 'conflict', // publish_record: taken over
  '55P03': 'waited', // lock_not_available: lock_timeout
  '57014': 'waited', // query_canceled: statement_timeout
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
    // Of the server's own: a wrong number of values, a NUL. A pooler says FATAL with it.
    if (code === '08P01' && error.severity === 'ERROR') return 'permanent';
    return MEANINGS[code] ?? (code.startsWith('08') ? 'connection' : 'permanent');
  }
  return isConnectionLoss(error) ? 'connection' : undefined;
}

/**
 * Did the server itself say that the statement failed, with the session still whole?
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
