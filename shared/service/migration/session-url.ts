import type { Credentials } from './master-secret.ts';

/**
 * Where and as whom to migrate, for at most `limitMs` a statement. The server itself ends what
 * outlasts the function, or whose function is gone: it would go on unseen, and keep the lock
 * from the next deployment. (They are start-up parameters, which a proxy refuses: connect to
 * the database itself.)
 */
export function sessionUrl(
  databaseUrl: string,
  { username, password }: Credentials,
  limitMs: number,
): string {
  const url = new URL(databaseUrl);
  url.username = encodeURIComponent(username);
  url.password = encodeURIComponent(password);
  const settings = {
    statement_timeout: Math.max(1, Math.floor(limitMs)),
    idle_in_transaction_session_timeout: 60_000,
    client_connection_check_interval: 5000,
  };
  const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`);
  url.searchParams.set('options', options.join(' '));
  return url.href;
}
