/**
 * A TCP proxy in front of a real server that fails on demand: it goes silent,
 * refuses, delays, or cuts a connection at an exact command.
 *
 *   const proxy = await startFaultProxy(db.apiUrl);     proxy.url → through it
 *   const lost = proxy.dropAfter('COMMIT\0');           carried out, its answer lost
 *   … ; await lost; await proxy.pass();
 *
 * A rule strikes once, at the next chunk of any client that matches. A chunk is
 * what a driver writes at once: one command of ioredis, all that pg has pipelined
 * (the \0 ends a statement there: READ COMMITTED contains COMMIT).
 */
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { urlOf } from './urls.ts';

/** A text that the chunk contains, or a test of it. */
export type Matches = string | ((chunk: Buffer) => boolean);

export interface FaultProxy {
  /** The target's URL, through this proxy. */
  readonly url: string;
  /** Since the start, what was swallowed included. */
  readonly traffic: Readonly<Traffic>;
  /**
   * Lifts every fault and forgets every rule. What was held goes on; connections that
   * lost anything are reset: resumed, they would pair answers with the wrong commands.
   */
  pass(): Promise<void>;
  /** Accepts and swallows; neither side hears of the other again. */
  blackHole(): void;
  /** A black hole for the connections that are open now; new ones pass. */
  freezeOpen(): void;
  /** Cuts what is open and closes the port: ECONNREFUSED. */
  refuse(): Promise<void>;
  /** Cuts what is open. New connections pass. */
  reset(): void;
  /** Each chunk from now on arrives so much later, in order. */
  delay(ms: { readonly toServer?: number; readonly toClient?: number }): void;
  /** Cuts the connection and never forwards the chunk. Resolves when it struck, as all of these. */
  dropBefore(matches: Matches): Promise<void>;
  /**
   * Forwards the chunk and waits for the server's answer, so that it was carried out;
   * then loses the answer, with a reset of both sides or in silence. The next answer
   * counts as this chunk's: let no other command be under way on its connection.
   */
  dropAfter(matches: Matches, how?: 'reset' | 'silence'): Promise<void>;
  /** Keeps the chunk, and what comes behind it on its connection, until `pass`. */
  holdAt(matches: Matches): Promise<void>;
  /** Forwards the chunk, and keeps the answers on its connection until `pass`. */
  holdAnswer(matches: Matches): Promise<void>;
  /** How many chunks of clients match from now on, forwarded or not. */
  count(matches: Matches): () => number;
  /** Cuts everything and frees the port. */
  close(): Promise<void>;
}

export interface Traffic {
  connections: number;
  /** Times that a client spoke first on its connection, or after an answer. */
  roundTrips: number;
  bytesToServer: number;
  bytesToClient: number;
}

type Fault = 'drop-before' | 'reset-after' | 'silence-after' | 'hold' | 'hold-answer';

interface Rule {
  readonly matches: Matches;
  readonly fault: Fault;
  struck(): void;
}

interface State {
  readonly targetPort: number;
  readonly traffic: Traffic;
  readonly delaysMs: { toServer: number; toClient: number };
  readonly links: Set<Link>;
  readonly rules: Set<Rule>;
  readonly counters: { readonly matches: Matches; count: number }[];
  isBlackHole: boolean;
}

/** One connection of a client, and ours to the server behind it (none in a black hole). */
interface Link {
  readonly toServer: Lane;
  readonly toClient: Lane;
  /** Cut off by a black hole: nothing passes any more, not even an end. */
  isLost: boolean;
  /** The server's answers are swallowed. */
  isDeaf: boolean;
  /** What befalls the next answer. */
  onAnswer: Rule | undefined;
  cut(): void;
}

export async function startFaultProxy(targetUrl: string): Promise<FaultProxy> {
  const state: State = {
    targetPort: Number(new URL(targetUrl).port),
    traffic: { connections: 0, roundTrips: 0, bytesToServer: 0, bytesToClient: 0 },
    delaysMs: { toServer: 0, toClient: 0 },
    links: new Set(),
    rules: new Set(),
    counters: [],
    isBlackHole: false,
  };
  const listener = net.createServer({ allowHalfOpen: true, noDelay: true }, (client) =>
    openLink(client, state),
  );
  const listen = async (port: number) => {
    listener.listen(port, '127.0.0.1');
    await once(listener, 'listening');
    return (listener.address() as net.AddressInfo).port;
  };
  const refuse = async () => {
    const closed = listener.listening ? once(listener, 'close') : undefined;
    listener.close();
    cut(state);
    await closed; // Comes once the last connection is gone.
  };
  const strike = (matches: Matches, fault: Fault) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    state.rules.add({ matches, fault, struck: resolve });
    return promise;
  };

  const port = await listen(0);
  return {
    url: urlOf(targetUrl, { port }),
    traffic: state.traffic,
    pass: async () => {
      lift(state);
      if (!listener.listening) await listen(port);
    },
    blackHole: () => {
      state.isBlackHole = true;
      freeze(state);
    },
    freezeOpen: () => freeze(state),
    refuse,
    reset: () => cut(state),
    delay: ({ toServer = 0, toClient = 0 }) => {
      Object.assign(state.delaysMs, { toServer, toClient });
    },
    dropBefore: (matches) => strike(matches, 'drop-before'),
    dropAfter: (matches, how = 'reset') => strike(matches, `${how}-after`),
    holdAt: (matches) => strike(matches, 'hold'),
    holdAnswer: (matches) => strike(matches, 'hold-answer'),
    count: (matches) => {
      const counter = { matches, count: 0 };
      state.counters.push(counter);
      return () => counter.count;
    },
    close: refuse,
  };
}

function cut({ links }: State, isCut: (link: Link) => boolean = () => true): void {
  for (const link of [...links].filter(isCut)) link.cut();
}

function freeze({ links }: State): void {
  for (const link of links) link.isLost = true;
}

function lift(state: State): void {
  state.rules.clear();
  state.isBlackHole = false;
  Object.assign(state.delaysMs, { toServer: 0, toClient: 0 });
  cut(state, (link) => link.isLost || link.isDeaf);
  for (const link of state.links) {
    link.onAnswer = undefined;
    link.toServer.resume();
    link.toClient.resume();
  }
}

function openLink(client: net.Socket, state: State): void {
  const { traffic, delaysMs, links } = state;
  const server = state.isBlackHole
    ? undefined
    : net.connect({
        port: state.targetPort,
        host: '127.0.0.1',
        allowHalfOpen: true,
        noDelay: true,
      });
  const link: Link = {
    toServer: openLane(server, () => delaysMs.toServer),
    toClient: openLane(client, () => delaysMs.toClient),
    isLost: server === undefined,
    isDeaf: false,
    onAnswer: undefined,
    cut: () => {
      links.delete(link);
      for (const socket of [client, server]) {
        if (socket?.connecting) socket.destroy();
        else socket?.resetAndDestroy();
      }
    },
  };
  links.add(link);
  traffic.connections++;
  let isClientsTurn = true;
  client.on('data', (chunk) => {
    if (isClientsTurn) traffic.roundTrips++;
    isClientsTurn = false;
    traffic.bytesToServer += chunk.length;
    for (const counter of state.counters) counter.count += Number(isMatch(counter.matches, chunk));
    if (!link.isLost) fromClient(link, chunk, state.rules);
  });
  server?.on('data', (chunk) => {
    isClientsTurn = true;
    traffic.bytesToClient += chunk.length;
    if (!link.isLost) fromServer(link, chunk);
  });
  for (const from of server ? [client, server] : [client]) {
    const lane = from === client ? link.toServer : link.toClient;
    from.on('end', () => link.isLost || lane.push(undefined));
    from.on('error', () => link.isLost || link.cut());
    from.on('close', () => client.destroyed && server?.destroyed && links.delete(link));
  }
}

function fromClient(link: Link, chunk: Buffer, rules: Set<Rule>): void {
  const rule = [...rules].find(({ matches }) => isMatch(matches, chunk));
  if (rule) rules.delete(rule);
  if (rule?.fault === 'hold') link.toServer.hold();
  if (rule?.fault === 'drop-before') link.cut();
  else link.toServer.push(chunk);
  if (rule?.fault === 'hold' || rule?.fault === 'drop-before') rule.struck();
  else link.onAnswer = rule ?? link.onAnswer;
}

function fromServer(link: Link, chunk: Buffer): void {
  const rule = link.onAnswer;
  link.onAnswer = undefined;
  if (rule?.fault === 'reset-after') link.cut();
  if (rule?.fault === 'silence-after') link.isDeaf = true;
  if (rule?.fault === 'hold-answer') link.toClient.hold();
  if (!link.isDeaf) link.toClient.push(chunk);
  rule?.struck();
}

function isMatch(matches: Matches, chunk: Buffer): boolean {
  return typeof matches === 'string' ? chunk.includes(matches) : matches(chunk);
}

/** One direction of one connection. */
interface Lane {
  /** `undefined` is the end of the stream. */
  push(chunk: Buffer | undefined): void;
  hold(): void;
  resume(): void;
}

/**
 * One queue and one loop that empties it, so that no chunk can overtake another: a
 * timer for each would reorder them. Without a delay a chunk leaves at once.
 */
function openLane(target: net.Socket | undefined, delayMs: () => number): Lane {
  const queue: { readonly chunk: Buffer | undefined; readonly dueMs: number }[] = [];
  let isHeld = false;
  let isRunning = false;
  const run = async () => {
    if (isRunning) return;
    isRunning = true;
    for (let head = queue[0]; head && !isHeld; head = queue[0]) {
      const waitMs = head.dueMs - performance.now();
      if (waitMs > 0) {
        await sleep(waitMs, undefined, { ref: false });
        continue;
      }
      queue.shift();
      if (head.chunk) target?.write(head.chunk);
      else target?.end();
    }
    isRunning = false;
  };
  return {
    push: (chunk) => {
      queue.push({ chunk, dueMs: performance.now() + delayMs() });
      void run();
    },
    hold: () => {
      isHeld = true;
    },
    resume: () => {
      isHeld = false;
      void run();
    },
  };
}
