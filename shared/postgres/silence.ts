import type { ClientBase } from 'pg';
import { destroySocket } from './pg-insides.ts';

/** An answer that waits for nothing but the server is there within this, or the connection is dead. */
export const AT_ONCE_MS = 1000;

/** Nothing was answered, neither by the server nor by the network: the connection is destroyed. */
export class SilenceError extends Error {
  override name = 'SilenceError';
}

/**
 * The answer, if it comes at once; otherwise the connection is destroyed: a dead one reports
 * nothing by itself until TCP gives up, after minutes or hours.
 *
 * @throws SilenceError.
 */
export async function answeredAtOnce<T>(client: ClientBase, answer: Promise<T>): Promise<T> {
  const { promise: silence, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(
    // A process that stood still first reads what has arrived meanwhile.
    () => setImmediate(() => setImmediate(giveUp)),
    AT_ONCE_MS,
  );
  let isAnswered = false;
  const giveUp = () => {
    if (isAnswered) return;
    reject(new SilenceError(`Connection terminated: no answer within ${AT_ONCE_MS} ms`));
    destroySocket(client);
  };
  answer.catch(() => {}); // Rejects as well once the connection is gone.
  try {
    return await Promise.race([answer, silence]);
  } finally {
    isAnswered = true;
    clearTimeout(timer);
  }
}
