/**
 * An HTTP proxy in front of a real DynamoDB that does what DynamoDB Local never does:
 * it throttles, reports conflicts, loses answers and delivers late.
 *
 *   const proxy = await startHttpFaultProxy(url);          proxy.url → through it
 *   proxy.next('TransactWriteItems', answer(THROTTLED), 2);
 *   proxy.next('TransactWriteItems', loseAnswer('reset'));  carried out, its answer lost
 *
 * A behaviour strikes at the next calls of its operation, in the order in which they were
 * asked for; every other call passes.
 */
import { once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
  request as send,
} from 'node:http';
import type { AddressInfo } from 'node:net';

export interface HttpFaultProxy {
  /** The target's URL, through this proxy. */
  readonly url: string;
  /** Every call so far, also those that were not forwarded. */
  readonly calls: readonly Call[];
  next(operation: string, behaviour: Behaviour, times?: number): void;
  /** Cuts what is open and closes the port: ECONNREFUSED. */
  refuse(): Promise<void>;
  /** Opens the port again, and forgets what was to come. */
  pass(): Promise<void>;
  close(): Promise<void>;
}

export interface Call {
  readonly operation: string;
  readonly body: Record<string, unknown>;
}

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** One call, from the moment when the proxy has it whole. */
export interface Exchange extends Call {
  /** Lets the server carry it out; resolves with its answer, which goes nowhere by itself. */
  forward(): Promise<Reply>;
  reply(reply: Reply): void;
  /** Cuts the client off. */
  reset(): void;
}

export type Behaviour = (exchange: Exchange) => void | Promise<void>;

export async function startHttpFaultProxy(targetUrl: string): Promise<HttpFaultProxy> {
  const rules: { readonly operation: string; readonly behaviour: Behaviour }[] = [];
  const calls: Call[] = [];
  const server = createServer(async (request, response) => {
    const exchange = await readExchange(request, response, targetUrl);
    calls.push(exchange);
    const at = rules.findIndex(({ operation }) => operation === exchange.operation);
    const [rule] = at < 0 ? [] : rules.splice(at, 1);
    try {
      await (rule?.behaviour ?? passOn)(exchange);
    } catch {
      // A client that has gone away, or a server that was stopped.
      exchange.reset();
    }
  });
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  };
  const refuse = async () => {
    if (!server.listening) return;
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  };
  const port = await listen(0);
  return {
    url: `http://127.0.0.1:${port}`,
    calls,
    next: (operation, behaviour, times = 1) => {
      rules.push(...Array.from({ length: times }, () => ({ operation, behaviour })));
    },
    refuse,
    pass: async () => {
      rules.splice(0);
      if (!server.listening) await listen(port);
    },
    close: refuse,
  };
}

/** What befalls every call for which nothing was asked: for those before the one that is meant. */
export const passOn: Behaviour = async (exchange) => exchange.reply(await exchange.forward());

export interface AwsError {
  readonly type: string;
  readonly status?: number;
  /** Members beside the message. */
  readonly members?: Readonly<Record<string, unknown>>;
}

export const THROTTLED: AwsError = { type: 'ThrottlingException' };

/** A transaction that was cancelled: a code for each of its items, or none at all. */
export function cancelled(...codes: readonly string[]): AwsError {
  const CancellationReasons = codes.map((Code) => ({ Code }));
  return {
    type: 'TransactionCanceledException',
    members: codes.length > 0 ? { CancellationReasons } : {},
  };
}

/** Answers in the server's place, which hears nothing of it. */
export function answer({ type, status = 400, members }: AwsError): Behaviour {
  const body = { __type: `com.amazonaws.dynamodb.v20120810#${type}`, message: type, ...members };
  return (exchange) =>
    exchange.reply({
      status,
      headers: { 'content-type': 'application/x-amz-json-1.0' },
      body: Buffer.from(JSON.stringify(body)),
    });
}

/** Carried out; the client never hears of it. */
export function loseAnswer(how: 'reset' | 'silence' = 'reset'): Behaviour {
  return async (exchange) => {
    await exchange.forward();
    if (how === 'reset') exchange.reset();
  };
}

/** Lost on its way there. */
export function loseRequest(how: 'reset' | 'silence' = 'reset'): Behaviour {
  return (exchange) => {
    if (how === 'reset') exchange.reset();
  };
}

export interface Held {
  readonly behaviour: Behaviour;
  /** Resolves when the call is there. */
  readonly arrived: Promise<void>;
  /** Delivers it, however long its sender has given up; resolves with the server's answer. */
  deliver(): Promise<Reply>;
  /** Answers it in the server's place after all. */
  answerInstead(error: AwsError): Promise<void>;
}

/** Keeps a call back on its way to the server. */
export function hold(): Held {
  const arrived = Promise.withResolvers<Exchange>();
  return {
    behaviour: (exchange) => arrived.resolve(exchange),
    arrived: arrived.promise.then(() => {}),
    deliver: async () => {
      const exchange = await arrived.promise;
      const reply = await exchange.forward();
      exchange.reply(reply);
      return reply;
    },
    answerInstead: async (error) => answer(error)(await arrived.promise),
  };
}

async function readExchange(
  request: IncomingMessage,
  response: ServerResponse,
  targetUrl: string,
): Promise<Exchange> {
  const bytes = Buffer.concat(await request.toArray());
  return {
    operation: String(request.headers['x-amz-target']).split('.').at(-1) as string,
    body: JSON.parse(bytes.toString('utf8') || '{}'),
    forward: () => forward(request, bytes, targetUrl),
    reply: ({ status, headers, body }) => {
      response.writeHead(status, headers);
      response.end(body);
    },
    reset: () => request.socket.resetAndDestroy(),
  };
}

async function forward(
  { headers, method = 'POST', url = '/' }: IncomingMessage,
  bytes: Buffer,
  targetUrl: string,
): Promise<Reply> {
  const onward = send(new URL(url, targetUrl), { method, headers });
  onward.end(bytes);
  const [answered] = (await once(onward, 'response')) as [IncomingMessage];
  return {
    status: answered.statusCode ?? 0,
    headers: answered.headers,
    body: Buffer.concat(await answered.toArray()),
  };
}
