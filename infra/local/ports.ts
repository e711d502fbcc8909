import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/**
 * Below the range from which systems take the local ports of outgoing connections (from 32768 on
 * Linux, 49152 on macOS). A server that is stopped and started again must find its port free, and
 * inside that range a client that keeps trying to reconnect can be given the very port that it
 * tries, meets itself there and holds it.
 */
const LOWEST_PORT = 15_000;
const HIGHEST_PORT = 32_000;

/** A loopback port that was free a moment ago. Whoever binds it must be ready to try another. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 100; tries++) {
    const port = randomInt(LOWEST_PORT, HIGHEST_PORT);
    if (await isFree(port)) return port;
  }
  throw new Error(`no free port on 127.0.0.1 between ${LOWEST_PORT} and ${HIGHEST_PORT}`);
}

/** Whether a server could listen on 127.0.0.1 at this port. */
export function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      server.close(() => resolve(true));
    });
  });
}
