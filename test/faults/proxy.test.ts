/** The proxy that the other fault tests trust, itself tested against an echo. */
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { type FaultProxy, startFaultProxy } from '../support/fault-proxy.ts';
import { eventually } from '../support/waiting.ts';

/** Answers every chunk with `<chunk>`, and remembers what reached it. */
interface Echo {
  readonly url: string;
  readonly heard: string[];
  readonly ends: ('end' | 'reset')[];
  close(): void;
}

let echo: Echo;
let proxy: FaultProxy;
beforeEach(async () => {
  echo = await startEcho();
  proxy = await startFaultProxy(echo.url);
});
afterEach(async () => {
  await proxy.close();
  echo.close();
});

async function startEcho(): Promise<Echo> {
  const heard: string[] = [];
  const ends: Echo['ends'] = [];
  const sockets = new Set<net.Socket>();
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('data', (chunk) => {
      heard.push(String(chunk));
      socket.write(`<${chunk}>`);
    });
    socket.on('end', () => {
      ends.push('end');
      socket.end('bye');
    });
    socket.on('error', () => ends.push('reset'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  return {
    url: `echo://127.0.0.1:${port}`,
    heard,
    ends,
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

interface Client {
  readonly socket: net.Socket;
  said(): string;
  /** The code of its error, once it has closed. */
  readonly closed: Promise<string | undefined>;
}

async function connect(): Promise<Client> {
  const socket = net.connect({ port: Number(new URL(proxy.url).port), host: '127.0.0.1' });
  onTestFinished(() => void socket.destroy());
  let said = '';
  let code: string | undefined;
  socket.on('data', (chunk) => {
    said += String(chunk);
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    code = error.code;
  });
  const closed = new Promise<string | undefined>((resolve) => {
    socket.once('close', () => resolve(code));
  });
  await once(socket, 'connect');
  return { socket, said: () => said, closed };
}

const hears = (client: Client, text: string) =>
  eventually(async () => client.said() === text, `${text}, not ${client.said()}`);

test('the proxy passes bytes both ways, ends in order, and counts', async () => {
  const client = await connect();
  client.socket.write('one');
  await hears(client, '<one>');
  client.socket.write('two');
  await hears(client, '<one><two>');
  client.socket.end('three');
  expect(await client.closed).toBeUndefined();
  expect(client.said()).toBe('<one><two><three>bye');
  expect(echo.ends).toEqual(['end']);
  expect(proxy.traffic).toEqual({
    connections: 1,
    roundTrips: 3,
    bytesToServer: 'onetwothree'.length,
    bytesToClient: '<one><two><three>bye'.length,
  });
});

test('the proxy resets the client of a server that is not there', async () => {
  echo.close();
  const { closed } = await connect();
  expect(await closed).toBe('ECONNRESET');
});

test('a black hole swallows, and what was in it is reset and never resumed', async () => {
  const before = await connect();
  before.socket.write('one');
  await hears(before, '<one>');
  proxy.blackHole();
  const within = await connect();
  const swallowed = proxy.count(() => true);
  before.socket.write('two');
  within.socket.write('three');
  await eventually(async () => swallowed() === 2, 'both swallowed');
  expect(proxy.traffic.bytesToServer).toBe('onetwothree'.length);

  await proxy.pass();
  expect(await before.closed).toBe('ECONNRESET');
  expect(await within.closed).toBe('ECONNRESET');
  const after = await connect();
  after.socket.write('four');
  await hears(after, '<four>');
  expect(echo.heard).toEqual(['one', 'four']);
  expect([before.said(), within.said()]).toEqual(['<one>', '']);
});

test('a freeze holds what is open and lets new connections pass', async () => {
  const old = await connect();
  proxy.freezeOpen();
  old.socket.write('one');
  const fresh = await connect();
  fresh.socket.write('two');
  await hears(fresh, '<two>');
  expect(old.said()).toBe('');
  await proxy.pass();
  expect(await old.closed).toBe('ECONNRESET');
  expect(fresh.socket.destroyed).toBe(false);
});

test('the proxy refuses, and listens again on the same port', async () => {
  const { closed } = await connect();
  await proxy.refuse();
  expect(await closed).toBe('ECONNRESET');
  await expect(connect()).rejects.toThrow('ECONNREFUSED');
  await proxy.pass();
  const again = await connect();
  again.socket.write('one');
  await hears(again, '<one>');
});

test('a command that is dropped before never reaches the server', async () => {
  const client = await connect();
  const struck = proxy.dropBefore('COMMIT');
  client.socket.write('SELECT');
  await hears(client, '<SELECT>');
  client.socket.write('COMMIT');
  await struck;
  expect(await client.closed).toBe('ECONNRESET');
  await eventually(async () => echo.ends.includes('reset'), 'the server reset too');
  expect(echo.heard).toEqual(['SELECT']);
});

test('a command that is dropped after is carried out, its answer is lost, and both sides are reset, once', async () => {
  const client = await connect();
  const struck = proxy.dropAfter('COMMIT');
  client.socket.write('COMMIT');
  await struck;
  expect(await client.closed).toBe('ECONNRESET');
  expect([client.said(), echo.heard]).toEqual(['', ['COMMIT']]);
  await eventually(async () => echo.ends.includes('reset'), 'the server reset too');
  const next = await connect();
  next.socket.write('COMMIT');
  await hears(next, '<COMMIT>');
});

test('a command that is dropped after in silence reaches the server, and the client gets no answer', async () => {
  const client = await connect();
  const struck = proxy.dropAfter((chunk) => chunk.includes('COMMIT'), 'silence');
  client.socket.write('COMMIT');
  await struck;
  client.socket.write('ROLLBACK');
  await eventually(async () => echo.heard.includes('ROLLBACK'), 'heard');
  expect([client.said(), client.socket.destroyed]).toEqual(['', false]);
  await proxy.pass();
  expect(await client.closed).toBe('ECONNRESET');
});

test('the proxy holds a command, and what is behind it, until it may pass', async () => {
  const client = await connect();
  const other = await connect();
  const held = proxy.holdAt('two');
  client.socket.write('one');
  await hears(client, '<one>');
  client.socket.write('two');
  await held;
  client.socket.write('three');
  other.socket.write('other');
  await hears(other, '<other>');
  expect(echo.heard).toEqual(['one', 'other']);
  await proxy.pass();
  await eventually(async () => echo.heard.slice(2).join('') === 'twothree', 'let go, in order');
});

test('the proxy holds an answer until it may pass', async () => {
  const client = await connect();
  const held = proxy.holdAnswer('one');
  client.socket.write('one');
  await held;
  expect([echo.heard, client.said()]).toEqual([['one'], '']);
  await proxy.pass();
  await hears(client, '<one>');
});

test('the proxy delays each direction, and nothing overtakes', async () => {
  const client = await connect();
  proxy.delay({ toServer: 30, toClient: 20 });
  const startMs = performance.now();
  client.socket.write('first');
  await hears(client, '<first>');
  expect(performance.now() - startMs).toBeGreaterThanOrEqual(50);

  // The delay goes down while chunks are under way: they still arrive in order.
  const sent = Array.from({ length: 300 }, (_, i) => `${i};`);
  for (const [i, text] of sent.entries()) {
    proxy.delay({ toServer: (300 - i) % 7, toClient: i % 5 });
    client.socket.write(text);
    if (i % 10 === 0) await sleep(1);
  }
  await eventually(async () => echo.heard.join('').endsWith(sent.join('')), 'all, in order');
  await eventually(
    async () => client.said().replaceAll(/[<>]/g, '') === `first${sent.join('')}`,
    'all answers, in order',
  );
});

test('closing the proxy frees the port and every socket, whatever is under way', async () => {
  const clients = await Promise.all([connect(), connect()]);
  proxy.delay({ toServer: 60_000 });
  clients[0]?.socket.write('late');
  proxy.freezeOpen();
  await proxy.close();
  for (const { closed } of clients) expect(await closed).toBe('ECONNRESET');
  await expect(connect()).rejects.toThrow('ECONNREFUSED');
});
