/**
 * A process of its own that stands before the servers and holds every chunk back for half
 * a round trip each way, in order. It also counts what a request waits for: the longest
 * chain of sends of which each came after the answer to the one before.
 *
 * Timers are a millisecond coarse, so it turns in circles while anything is on its way.
 */
import { once } from 'node:events';
import net from 'node:net';
import { urlOf } from '../support/urls.ts';

/** Asked of the process. Each is answered with a `DelayAnswer`. */
export type DelayRequest =
  | { readonly kind: 'open'; readonly urls: Readonly<Record<string, string>> }
  | { readonly kind: 'delay'; readonly roundTripMs: number }
  /** Starts counting anew. */
  | { readonly kind: 'count' };

export interface DelayAnswer {
  /** The same servers, through here. */
  readonly urls: Readonly<Record<string, string>>;
  /** Sequential round trips since the last `count`. */
  readonly roundTrips: number;
  /** Chunks that went to each server since the last `count`. */
  readonly chunks: Readonly<Record<string, number>>;
}

interface Flight {
  readonly dueMs: number;
  land(): void;
}

const urls: Record<string, string> = {};
const chunks: Record<string, number> = {};
/** The first to leave is the first to land: the delay only changes between requests. */
const flights: Flight[] = [];
let delayMs = 0;
/** How deep the deepest answer is that a client has in hand, and the deepest send. */
let answeredDepth = 0;
let sentDepth = 0;

function fly(land: () => void): void {
  if (delayMs === 0) land();
  else if (flights.push({ dueMs: performance.now() + delayMs, land }) === 1) setImmediate(turn);
}

function turn(): void {
  for (let head = flights[0]; head && head.dueMs <= performance.now(); head = flights[0]) {
    flights.shift();
    head.land();
  }
  if (flights.length > 0) setImmediate(turn);
}

async function open(name: string, url: string): Promise<void> {
  const port = Number(new URL(url).port);
  const listener = net.createServer({ noDelay: true }, (client) => {
    const server = net.connect({ host: '127.0.0.1', port, noDelay: true });
    let depth = 0;
    client.on('data', (chunk) => {
      depth = answeredDepth + 1;
      sentDepth = Math.max(sentDepth, depth);
      chunks[name] = (chunks[name] ?? 0) + 1;
      fly(() => server.write(chunk));
    });
    server.on('data', (chunk) =>
      fly(() => {
        answeredDepth = Math.max(answeredDepth, depth);
        client.write(chunk);
      }),
    );
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      from.on('error', () => to.destroy());
      from.on('close', () => fly(() => to.destroy()));
    }
  });
  await once(listener.listen(0, '127.0.0.1'), 'listening');
  urls[name] = urlOf(url, { port: (listener.address() as net.AddressInfo).port });
}

process.on('message', async (request: DelayRequest) => {
  if (request.kind === 'open') {
    for (const [name, url] of Object.entries(request.urls)) await open(name, url);
  }
  if (request.kind === 'delay') delayMs = request.roundTripMs / 2;
  const answer: DelayAnswer = { urls, roundTrips: sentDepth, chunks: { ...chunks } };
  if (request.kind === 'count') {
    answeredDepth = sentDepth = 0;
    for (const name of Object.keys(chunks)) delete chunks[name];
  }
  process.send?.(answer);
});
process.on('disconnect', () => process.exit());
