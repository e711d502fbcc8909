/**
 * What is used of pg's connection though its types do not promise it: the socket, and the event
 * behind each answer. See docs/internals.md.
 */
import type { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import type { ClientBase } from 'pg';

/** Emits `readyForQuery` with the transaction's status (I, T or E) behind each answer. */
export function connectionOf(client: ClientBase): EventEmitter & { readonly stream: Duplex } {
  return (client as unknown as { readonly connection: EventEmitter & { readonly stream: Duplex } })
    .connection;
}

/** Loses the connection, and so every answer that is still to come. */
export function destroySocket(client: ClientBase): void {
  connectionOf(client).stream.destroy();
}

/**
 * What is sent in one turn leaves in one write (of BEGIN, claim, savepoint and the work's
 * first query together): a system call each is a tenth of the CPU time of a request.
 */
export function corkWrites(client: ClientBase): void {
  const { stream } = connectionOf(client);
  stream.cork();
  process.nextTick(() => stream.uncork());
}

/** Resolves behind the next ReadyForQuery, or when the connection is gone. */
export function nextStatus(client: ClientBase): Promise<void> {
  return new Promise((resolve) => {
    const connection = connectionOf(client);
    if (connection.stream.destroyed) return resolve();
    const done = () => {
      connection.off('readyForQuery', done).off('end', done);
      resolve();
    };
    connection.on('readyForQuery', done).on('end', done);
  });
}
