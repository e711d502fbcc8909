/** What is wrong with a Redis itself, and will be with the next command as well. */

/** It answers, and rejects the cache's commands: no outage, but a fault of its set-up. */
export class UnfitRedisError extends Error {
  override name = 'UnfitRedisError';
}

/** @returns what to mend, where `error` is the refusal of such a Redis; else undefined. */
export function unfitness(error: unknown): UnfitRedisError | undefined {
  if (error instanceof UnfitRedisError) return error;
  const message = error instanceof Error ? error.message : '';
  const why = WHYS.find(([refusal]) => refusal.test(message))?.[1];
  // The refusal names the user and the command, and no argument.
  return why === undefined ? undefined : new UnfitRedisError(`${why} It said: ${message}`);
}

const TOO_OLD =
  'This Redis is too old: the cache needs Redis 7 or newer, or Valkey, for SET with NX, GET and PXAT together. Upgrade it.';
const NO_RIGHT =
  'This Redis user lacks a right that the cache needs: give it +set +get +del +eval on the keys of its namespace (~NAMESPACE:*), as infra/cache.yml does.';

const WHYS: readonly (readonly [RegExp, string])[] = [
  [/^ERR syntax error/, TOO_OLD],
  // Of a command, of a key, and of a command in a script (Redis 7.0, 7.2, Valkey).
  [/^NOPERM|can't run this command|ACL failure in script|^ERR unknown command/, NO_RIGHT],
];
