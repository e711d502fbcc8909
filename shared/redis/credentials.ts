import type { Redis } from 'ioredis';

/** A password that is made anew for each connection, and again before the server forgets the last. */
export interface IssuedPassword {
  issue(): string;
  /** ElastiCache cuts a connection 12 hours after it last signed in. */
  readonly renewEveryMs: number;
}

/**
 * Has every connection of `redis` sign in with a new password. ioredis reads the option
 * whenever it connects, and copies it for the connections that it makes on the side (a
 * cluster's map of slots), which connect at once.
 */
export function signInWith(redis: Redis, { issue, renewEveryMs }: IssuedPassword): void {
  Object.defineProperty(redis.options, 'password', { get: issue, enumerable: true });
  const user = redis.options.username ?? 'default';
  let renewal: NodeJS.Timeout | undefined;
  redis.on('ready', () => {
    // What cannot be renewed is cut off in the end, and signs in anew.
    const renew = () => void redis.auth(user, issue()).catch(() => {});
    renewal = setInterval(renew, renewEveryMs).unref();
  });
  redis.on('close', () => clearInterval(renewal));
}
