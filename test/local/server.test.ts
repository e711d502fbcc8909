/** The way in which every local server is started, on one that starts at once. */
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Exit } from '../../infra/local/process.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import { type ServerPlan, startServer } from '../../infra/local/server.ts';
import { until } from './fixtures/wait.ts';

/** Listens on the port that it is given, and says so; or says that it is taken, and ends. */
const LISTENER = `const server = require('node:net').createServer();
  server.on('error', ({ message }) => { console.log('did not: ' + message); process.exit(1); });
  server.listen(Number(process.argv[1]), '127.0.0.1', () => console.log('listening'));`;

async function plan(more: Partial<ServerPlan> = {}): Promise<ServerPlan> {
  const folder = await createRunFolder();
  onTestFinished(folder.remove);
  const logFile = join(folder.path, 'log');
  return {
    name: 'Listener',
    origin: 'a test',
    launch: (port) => ({
      command: process.execPath,
      args: ['-e', LISTENER, String(port)],
      env: {},
      cwd: folder.path,
      logFile,
    }),
    url: (port) => `tcp://127.0.0.1:${port}`,
    ready: /^listening$/m,
    stopSignals: ['SIGTERM'],
    closeSignals: ['SIGKILL'],
    ...more,
  };
}

async function takenPort(): Promise<number> {
  const taken = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void taken.close());
  await until('it listens', () => taken.listening);
  return (taken.address() as { port: number }).port;
}

test('a port that others took is reported, and not exchanged for one that nobody knows', async () => {
  const started = startServer(await plan({ port: await takenPort() }));
  await expect(started).rejects.toThrow(/Listener did not start.*address already in use/s);
});

test('another port is used instead of one that others took where none was given', async () => {
  const taken = await takenPort();
  const { launch, ...rest } = await plan();
  const tried: number[] = [];
  const server = await startServer({
    ...rest,
    launch: (port) => {
      tried.push(port);
      return launch(tried.length === 1 ? taken : port);
    },
  });
  onTestFinished(server.close);
  expect(tried).toHaveLength(2);
  expect(server.port).toBe(tried[1]);
});

test('a server that dies by itself is reported, and a start brings it back on its port', async () => {
  const exits: Exit[] = [];
  const server = await startServer(await plan({ onExit: (exit) => exits.push(exit) }));
  onTestFinished(server.close);
  const { port, pid } = server;
  process.kill(pid ?? 0, 'SIGKILL');
  await until('the death is told', () => exits.length > 0);
  expect(exits).toEqual([{ code: null, signal: 'SIGKILL' }]);
  await server.start();
  expect(server.port).toBe(port);
  expect(server.pid).not.toBe(pid);
});
