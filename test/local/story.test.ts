/** The story on services that are not as they should be; on one that is, see service.test.ts. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { programResult } from './fixtures/program.ts';
import { copyProject } from './fixtures/project-copy.ts';
import { until } from './fixtures/wait.ts';

test('the story finds out a service that takes coins twice, or errors under status 200', async () => {
  let coins = 100;
  const url = await serve((request, response) => {
    if (request.url === '/health') return response.end('{"dependencies":{"redis":"up"}}');
    if (request.method === 'POST') {
      coins -= 1;
      if (coins % 2 === 1) return response.end('{"errorMessage":"thrown"}');
    }
    return response.end(`{"userId":"alice","coins":${coins},"dataVersion":"1"}`);
  });
  const { code, stdout } = await story({ API_URL: url }, '--json');
  const { ok, steps } = JSON.parse(stdout) as {
    ok: boolean;
    steps: { name: string; ok?: boolean }[];
  };
  expect({ code, ok }).toEqual({ code: 1, ok: false });
  const passed = steps.filter((step) => step.ok === true).map(({ name }) => name);
  expect(passed).toEqual([]);
  expect(steps.filter((step) => 'leftOut' in step)).toHaveLength(4);
});

test('the story reports in a line a service that is not there', async () => {
  const { code, stdout } = await story({ API_URL: 'http://127.0.0.1:1' });
  expect(code).toBe(1);
  expect(stdout).toContain('something differs');
});

test('the story refuses an unknown option', async () => {
  expect(await story({}, '--yaml')).toMatchObject({ code: 2, stdout: '' });
});

async function story(env: Record<string, string>, ...args: string[]) {
  const copy = await copyProject({ modules: 'link' });
  onTestFinished(copy.remove);
  const none = { DATABASE_URL: undefined, REDIS_URL: undefined, API_URL: undefined };
  return programResult(join(copy.folder, 'test/e2e/run-story.ts'), args, {
    env: { ...none, ...env },
  });
}

async function serve(answer: (request: IncomingMessage, response: ServerResponse) => unknown) {
  const server = createServer(answer).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await until('it listens', () => server.listening);
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`;
}
