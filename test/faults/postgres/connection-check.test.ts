/** What a server and a role must be like, judged by the first statement on each connection. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, inject, onTestFinished, test } from 'vitest';
import { startPostgres } from '../../../infra/local/postgres.ts';
import { PROJECT_FOLDER } from '../../../infra/local/project.ts';
import { createRunFolder } from '../../../infra/local/run-folder.ts';
import { markerStore, migrate } from '../../../shared/postgres/index.ts';
import { acquire } from '../../../shared/postgres/pool.ts';
import type { Service } from '../../../shared/service/index.ts';
import { createTestDatabase, openSession, type TestDatabase } from '../../support/database.ts';
import { startFaultProxy } from '../../support/fault-proxy.ts';
import { newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { DONE, takeCoin, testHandler } from '../../support/test-handler.ts';
import { urlOf } from '../../support/urls.ts';
import { HANG_MS } from '../../support/waiting.ts';

let db: TestDatabase;
let name: string;
let role: string;
beforeEach(async () => {
  db = await createTestDatabase();
  const [row] = await db.sql<{ name: string }>('SELECT current_database() AS name');
  name = row?.name as string;
  role = `r_${newKey().replaceAll('-', '').slice(0, 12)}`;
  await db.sql(`CREATE ROLE ${role} LOGIN PASSWORD 'backstop-test'`);
});
afterEach(async () => {
  await db.sql(`DROP OWNED BY ${role}`);
  await db.drop();
  await openedServer(`DROP ROLE ${role}`);
});

async function openedServer(sql: string): Promise<void> {
  const admin = new pg.Client({ connectionString: inject('adminUrl') });
  await admin.connect();
  await admin.query(sql).finally(() => admin.end());
}

const LIMITS = ['statement_timeout', 'idle_in_transaction_session_timeout'];
const limit = async () => {
  for (const setting of LIMITS) await db.sql(`ALTER ROLE ${role} SET ${setting} = '28s'`);
};
const grantMarkers = async () => {
  await db.sql(`GRANT SELECT, INSERT ON player_mutation_idempotency TO ${role}`);
  await db.sql(`GRANT EXECUTE ON FUNCTION promise_retention(text, bigint) TO ${role}`);
};
const url = () => urlOf(db.adminUrl, { role });

/** Reasons for which a service with both Postgres stores refuses the role, by line. */
async function refusal(at = url(), use: (service: Service) => void = both): Promise<string> {
  const service = testService({ apiUrl: at });
  use(service);
  const error = await service.database.pool.connect().then(
    (client) => void client.release(),
    (reason: Error) => reason,
  );
  return error === undefined ? 'welcome' : error.message;
}

function markers(service: Service): void {
  testHandler(service, takeCoin);
}

function both(service: Service): void {
  markers(service);
  service.recordMutation({
    name: 'record',
    body: undefined,
    stateUrl: '/players/me',
    run: ({ once }) => once(async () => DONE),
  });
}

/** The statements that a refusal names. */
function mending(message: string): string[] {
  return [...message.matchAll(/((?:ALTER ROLE|GRANT) [^;]*);/g)].map(([, sql]) => sql as string);
}

describe('an unfit role', () => {
  test('synchronous_commit = off is refused at the first connection, with the statement that mends it (C121)', async () => {
    await db.sql(`ALTER ROLE backstop_api IN DATABASE ${name} SET synchronous_commit = off`);
    const message = await refusal(db.apiUrl);
    expect(message).toMatch(/synchronous_commit is off, so a crash would lose/);
    expect(mending(message)).toEqual([
      `ALTER ROLE "backstop_api" IN DATABASE "${name}" SET synchronous_commit = 'on'`,
    ]);
    for (const sql of mending(message)) await db.sql(sql);
    expect(await refusal(db.apiUrl)).toBe('welcome');
  });

  test('synchronous_commit = local survives a crash of this server, and is accepted (core 11)', async () => {
    await db.sql(`ALTER DATABASE ${name} SET synchronous_commit = local`);
    expect(await refusal(db.apiUrl)).toBe('welcome');
  });

  test('default_transaction_deferrable = on is refused, wherever it was set (C123, core 10)', async () => {
    await db.sql(`ALTER DATABASE ${name} SET default_transaction_deferrable = on`);
    const message = await refusal(db.apiUrl);
    expect(message).toMatch(/default_transaction_deferrable is on, so a BEGIN that failed/);
    await db.sql(`ALTER DATABASE ${name} RESET default_transaction_deferrable`);
    expect(await refusal(db.apiUrl)).toBe('welcome');
  });

  test('a setting that comes with the connection is refused with the advice to take it out of the URL', async () => {
    const message = await refusal(`${db.apiUrl}?options=-c%20synchronous_commit%3Doff`);
    expect(message).toMatch(/synchronous_commit is off.*the URL's options, or PGOPTIONS/);
    expect(mending(message)).toEqual([]);
  });

  test('one message names all that is unfit, and its statements mend it all (library S8)', async () => {
    await db.sql(`ALTER DATABASE ${name} SET synchronous_commit = off`);
    await db.sql(`ALTER DATABASE ${name} SET default_transaction_deferrable = on`);
    await db.sql(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
    await db.sql('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC').catch(() => {});
    const message = await refusal();
    for (const part of [
      'statement_timeout is 0 (no limit)',
      'idle_in_transaction_session_timeout is 0 (no limit)',
      'synchronous_commit is off',
      'default_transaction_deferrable is on',
      'default_transaction_read_only is on',
      'GRANT SELECT ON player_mutation_idempotency',
      'GRANT INSERT ON player_mutation_idempotency',
      'GRANT DELETE ON idempotency_records',
      'GRANT EXECUTE ON FUNCTION claim_marker(text, text, timestamptz)',
      'GRANT EXECUTE ON FUNCTION claim_record(',
    ]) {
      expect(message).toContain(part);
    }
    const admin = await openSession(db.adminUrl);
    await admin.query('SET default_transaction_read_only = off');
    for (const sql of mending(message)) await admin.query(sql);
    expect(await refusal()).toBe('welcome');
  });

  test('the statements in docs/database.md make a role of one’s own fit (library S8)', async () => {
    await db.sql('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC');
    const docs = readFileSync(join(PROJECT_FOLDER, 'docs/database.md'), 'utf8');
    const blocks = [...docs.matchAll(/```sql\n([^`]*)```/g)].map(([, sql]) => sql as string);
    expect(blocks).toHaveLength(2);
    for (const sql of blocks) await db.sql(sql.replaceAll(/\bapp\b/g, role));
    // Anybody may call it, as the migration says; revoked above with the rest.
    await db.sql('GRANT EXECUTE ON FUNCTION publish_record(bigint, uuid, bytea) TO PUBLIC');
    expect(await refusal()).toBe('welcome');
  });

  test('a role needs only what its stores use', async () => {
    await limit();
    await grantMarkers();
    expect(await refusal(url(), markers)).toBe('welcome');
    expect(await refusal(url(), () => {})).toBe('welcome');
    const message = await refusal();
    expect(message).toContain('ON idempotency_records');
    expect(message).not.toContain('player_mutation_idempotency');
  });

  test('a store that is made later is checked before its first request', async () => {
    await limit();
    await grantMarkers();
    await db.sql(`GRANT SELECT, INSERT, UPDATE ON players TO ${role}`);
    const service = testService({ apiUrl: url() }, { BACKSTOP_POOL_MAX: '1' });
    const marker = testHandler(service, async () => DONE);
    const request = () => ({ principal: 'p', key: newKey(), body: {} });
    expect((await send(marker, request())).status).toBe(200);
    const record = service.recordMutation({
      name: 'record',
      body: undefined,
      stateUrl: '/players/me',
      run: ({ once }) => once(async () => DONE),
    });
    // By the connection check, in words of ours, and not by the first statement that fails.
    const acquiring = acquire(service.database.pool, Date.now() + HANG_MS);
    acquiring.then(
      (client) => client.release(),
      () => {},
    );
    await expect(acquiring).rejects.toThrow(/ON idempotency_records/);
    expect((await send(record, request())).code).toBe('INTERNAL');
    await db.sql(`GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records TO ${role}`);
    expect((await send(record, request())).status).toBe(200);
    expect((await send(marker, request())).status).toBe(200);
  });
});

describe('an unfit schema', () => {
  test('a database that was not migrated is refused with the word migrate (library S8)', async () => {
    await db.sql('DROP SCHEMA public CASCADE');
    await db.sql('CREATE SCHEMA public');
    await db.sql('GRANT USAGE ON SCHEMA public TO PUBLIC');
    const message = await refusal(db.apiUrl);
    expect(message).toMatch(
      /player_mutation_idempotency is missing\. Run migrate\(databaseUrl\) \(migration 0001_markers\)/,
    );
    expect(message).toMatch(/idempotency_records is missing.*0002_records/);
    await migrate(db.adminUrl);
    expect(await refusal(db.apiUrl)).toBe('welcome');
  });

  test('a schema that lacks functions is refused with the migrations that make them (library S8)', async () => {
    await db.sql('DROP FUNCTION claim_marker');
    await db.sql('DROP FUNCTION publish_record');
    const message = await refusal(db.apiUrl);
    expect(message).toMatch(/claim_marker\(.*\) is missing\. Run .*migration 0001_markers\)/);
    expect(message).toMatch(/publish_record\(.*\) is missing\. Run .*migration 0002_records\)/);
    expect(message.match(/\n- /g)).toHaveLength(2);
  });

  test('a schema that the role does not see is named, with the statement that lets it see', async () => {
    await limit();
    await grantMarkers();
    await db.sql('ALTER SCHEMA public RENAME TO elsewhere');
    await db.sql('REVOKE USAGE ON SCHEMA elsewhere FROM PUBLIC');
    const message = await refusal(url(), markers);
    expect(message).toMatch(/There is one of its name in the schema elsewhere: /);
    for (const sql of mending(message)) await db.sql(sql);
    expect(await refusal(url(), markers)).toBe('welcome');
  });
});

describe('what the client is told', () => {
  const request = () => ({ principal: 'p', key: newKey(), body: {} });

  test.each(['on', 'off'])(
    'an unfit server is our fault and no outage: 500 without Retry-After, the key unused, pipelining %s',
    async (pipeline) => {
      await db.sql(`ALTER DATABASE ${name} SET synchronous_commit = off`);
      await db.sql(`INSERT INTO players (user_id, coins) VALUES ('p', 10)`);
      const handler = testHandler(testService(db, { BACKSTOP_PIPELINE: pipeline }), takeCoin);
      const sent = request();
      const answer = await send(handler, sent);
      expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
        500,
        'INTERNAL',
        undefined,
      ]);
      await db.sql(`ALTER DATABASE ${name} RESET synchronous_commit`);
      expect((await send(handler, sent)).status).toBe(200);
    },
  );

  test('a mistake of ours on the way to a connection is no outage (library B2)', async () => {
    const { database } = testService(db);
    const broken = { ...database, pool: undefined as never };
    const store = markerStore({ database: broken, retentionMs: 3_600_000 });
    const begun = await store.begin({ principal: 'p', deadlineMs: Date.now() + 5000 });
    expect(begun).toMatchObject({ kind: 'failed', error: expect.any(TypeError) });
  });

  test('a standby is an outage: it is 503, and the reason is in the log', async () => {
    await db.sql(
      `CREATE FUNCTION pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
    );
    await db.sql(`ALTER DATABASE ${name} SET search_path = public, pg_catalog`);
    expect(await refusal(db.apiUrl)).toMatch(/this server is a standby \(pg_is_in_recovery\)/);
    const answer = await send(testHandler(testService(db), takeCoin), request());
    expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
      503,
      'UNAVAILABLE',
      '1',
    ]);
  });

  test('a server that is read-only as a whole is an outage and 503', async () => {
    const folder = await createRunFolder();
    const settings = { default_transaction_read_only: 'on' };
    const server = await startPostgres({ runDir: folder.path, settings });
    onTestFinished(async () => {
      await server.close();
      await folder.remove();
    });
    await migrate(`${server.url}?options=-c%20default_transaction_read_only%3Doff`);
    const apiUrl = urlOf(server.url, { role: 'backstop_api' });
    expect(await refusal(apiUrl)).toMatch(/this server is read-only as a whole/);
    const answer = await send(testHandler(testService({ apiUrl }), takeCoin), request());
    expect([answer.status, answer.code]).toEqual([503, 'UNAVAILABLE']);
  });
});

test('the connection check is one round trip, and sets nothing that pins a proxied connection', async () => {
  const proxy = await startFaultProxy(db.apiUrl);
  onTestFinished(() => proxy.close());
  const service = testService({ apiUrl: proxy.url });
  both(service);
  const sets = ['SET ', 'set_config', 'PREPARE'].map((word) => proxy.count(word));
  const client = await service.database.pool.connect();
  const trips = proxy.traffic.roundTrips;
  client.release();
  const bare = new pg.Client({ connectionString: proxy.url });
  await bare.connect();
  const bareTrips = proxy.traffic.roundTrips - trips;
  await bare.end();
  expect(trips - bareTrips).toBe(1);
  expect(sets.map((count) => count())).toEqual([0, 0, 0]);
});
