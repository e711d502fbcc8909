import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

export interface Received {
  readonly method: string | undefined;
  readonly contentType: string | undefined;
  readonly body: string;
}

export interface Answer {
  readonly status: number;
  readonly body?: string;
}

/**
 * An HTTP server of the test's own, on loopback, closed when the test ends.
 *
 * @param answer what it says to the n-th request, from 0.
 */
export async function serveHttp(
  answer: (n: number) => Answer,
): Promise<{ readonly url: string; readonly received: readonly Received[] }> {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { status, body } = answer(received.length);
    received.push({
      method: request.method,
      contentType: request.headers['content-type'],
      body: Buffer.concat(chunks).toString(),
    });
    response.writeHead(status).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received };
}
