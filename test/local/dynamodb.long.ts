/** A DynamoDB of a test's own, which takes seconds to start: the long form of service.test.ts and server.test.ts. */
import { createServer } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { startDynamodb } from '../../infra/local/dynamodb.ts';
import { prepareTable } from '../../infra/local/dynamodb-table.ts';
import { environment } from '../../infra/local/environment.ts';
import type { Exit } from '../../infra/local/process.ts';
import { createRunFolder, type RunFolder } from '../../infra/local/run-folder.ts';
import type { Server } from '../../infra/local/server.ts';
import { startServices } from '../../infra/local/services.ts';
import { dynamodbUrl, tableAt } from '../support/dynamodb.ts';
import { isRunning, until } from './fixtures/wait.ts';

// Once that of the whole run is there, another can be had, and nothing has to be fetched.
const isHere = (await dynamodbUrl()) !== undefined;

describe.skipIf(!isHere)('a DynamoDB of our own', () => {
  let folder: RunFolder;
  let server: Server;
  // Filled by what a test does to its server; the tests run in any order.
  const exits: Exit[] = [];
  beforeEach(() => void exits.splice(0));

  beforeAll(async () => {
    folder = await createRunFolder();
    server = await startDynamodb({ runDir: folder.path, onExit: (exit) => exits.push(exit) });
  });
  afterAll(async () => {
    await server?.close();
    await folder.remove();
  });

  test('DynamoDB stops, and starts again on its port, with its data', async () => {
    const { port, pid, url } = server;
    await prepareTable(url, 'keeps');
    await prepareTable(url, 'keeps'); // It is there already: nothing is done, and nothing said.
    const table = tableAt(url, 'keeps');
    onTestFinished(() => table.close());
    const write = { TableName: 'keeps', Item: { pk: { S: 'a' } } };
    const { PutItemCommand } = await import('@aws-sdk/client-dynamodb');
    await table.client.send(new PutItemCommand(write));
    await server.stop();
    expect(isRunning(pid)).toBe(false);
    await expect(table.get('a')).rejects.toThrow('UNAVAILABLE');
    await server.start();
    expect(server.port).toBe(port);
    expect(await table.get('a')).toEqual({ pk: { S: 'a' } });
    expect(exits).toEqual([]);
  });

  test('a DynamoDB that dies by itself is reported', async () => {
    process.kill(server.pid ?? 0, 'SIGKILL');
    await until('the death is told', () => exits.length > 0);
    expect(exits).toEqual([{ code: null, signal: 'SIGKILL' }]);
    await server.start();
    expect((await fetch(server.url)).status).toBe(400);
  });
});

describe.skipIf(!isHere)('a DynamoDB that is late', () => {
  const others = { DATABASE_URL: 'postgres://d.example/x', REDIS_URL: 'redis://r.example' };
  const env = { ...environment(), ...others, DYNAMODB_ENDPOINT: undefined };

  test('nobody waits for DynamoDB, and everybody knows where it will be', async () => {
    const services = await startServices({ env });
    onTestFinished(services.close);
    const { dynamodb } = services;
    if (dynamodb.from !== 'starting') throw new Error(dynamodb.from);
    const settled = await dynamodb.settled;
    expect(settled).toMatchObject({ from: 'local', url: dynamodb.url });
    expect(services.dynamodb).toBe(settled);
    expect((await fetch(dynamodb.url)).status).toBe(400);
  });

  test('a port that others took is reported, and not exchanged for one that nobody knows', async () => {
    const folder = await createRunFolder();
    onTestFinished(folder.remove);
    const taken = createServer().listen(0, '127.0.0.1');
    onTestFinished(() => void taken.close());
    await until('it listens', () => taken.listening);
    const { port } = taken.address() as { port: number };
    const started = startDynamodb({ runDir: folder.path, port });
    await expect(started).rejects.toThrow(/DynamoDB did not start.*Address already in use/s);
  });
});
