import net from 'node:net';
import { onTestFinished } from 'vitest';
import { urlOf } from './urls.ts';

/**
 * What becomes of a chunk of a client's on its way to the server: the same or another one, or
 * none. `answer` sends something to the client in the server's name, whose next answer it replaces.
 */
export type Rewrite = (
  chunk: Buffer,
  answer: (bytes: Buffer) => void,
  target: net.Socket,
) => Buffer | undefined;

/** A TCP proxy that changes what is said; closed when the test ends. @returns its URL. */
export async function rewritingProxy(targetUrl: string, rewrite: Rewrite): Promise<string> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((client) => {
    const target = net.connect(Number(new URL(targetUrl).port), '127.0.0.1');
    for (const socket of [client, target]) sockets.add(socket.on('error', () => {}));
    const answers: Buffer[] = [];
    client.on('data', (chunk) => {
      const passed = rewrite(chunk, (bytes) => answers.push(bytes), target);
      if (passed) target.write(passed);
      else for (const bytes of answers.splice(0)) client.write(bytes);
    });
    target.on('data', (chunk) => client.write(answers.shift() ?? chunk));
    client.on('close', () => target.destroy());
    target.on('end', () => client.end());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return urlOf(targetUrl, { port: (server.address() as net.AddressInfo).port });
}
