/** What the shell has set for other servers and for proxies; on a whole service, see service.test.ts. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import {
  environment,
  noProxyVariables,
  postgresVariables,
  serverEnvironment,
} from '../../infra/local/environment.ts';
import { programResult } from './fixtures/program.ts';
import { until } from './fixtures/wait.ts';

test('loopback is added to what goes past a proxy already, in both spellings', () => {
  const both = (value: string) => ({ no_proxy: value, NO_PROXY: value });
  expect(noProxyVariables({})).toEqual(both('127.0.0.1,localhost,::1'));
  expect(noProxyVariables({ NO_PROXY: 'a.example,localhost' })).toEqual(
    both('a.example,localhost,127.0.0.1,::1'),
  );
  // As Node and curl do, which look at this one first.
  expect(noProxyVariables({ no_proxy: 'b.example', NO_PROXY: 'a.example' })).toEqual(
    both('b.example,127.0.0.1,localhost,::1'),
  );
});

test('no variable of the shell but PATH reaches a server', () => {
  const shell = { PATH: '/bin', PGDATA: '/mine', LD_PRELOAD: 'x.so', HTTP_PROXY: 'http://p' };
  expect(postgresVariables(shell)).toEqual(['PGDATA']);
  expect(serverEnvironment('/run', shell)).toEqual({
    PATH: '/bin',
    HOME: '/run',
    TMPDIR: '/run',
    TZ: 'UTC',
    LC_ALL: 'C',
  });
});

test('a fetch to loopback goes past the proxy, in the tests and in a program that asks for it', async () => {
  expect(environment()['NO_PROXY']).toContain('127.0.0.1');
  const server = createServer((_, response) => response.end('direct')).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await until('it listens', () => server.listening);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const fetching = new URL('./fixtures/fetching-program.ts', import.meta.url).pathname;
  const env = { NODE_USE_ENV_PROXY: '1', HTTP_PROXY: 'http://127.0.0.1:9' };
  const past = await programResult(fetching, [url], { env });
  expect(past).toEqual({ code: 0, stdout: 'direct\n', stderr: '' });
  // Also where only the program itself keeps loopback off the proxy.
  const late = { ...env, NO_PROXY: undefined, no_proxy: undefined };
  expect(await programResult(fetching, [url], { env: late })).toMatchObject({ stdout: 'direct\n' });
});
