/** Migrating a database where roles and rights are not as on a server of one's own. */
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { startPostgres } from '../../infra/local/postgres.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import { migrate } from '../../shared/postgres/index.ts';
import { createService } from '../../shared/service/index.ts';
import { newKey, send } from '../support/requests.ts';
import { DONE } from '../support/test-handler.ts';
import { urlOf } from '../support/urls.ts';

/** Roles belong to a server, so this one is the test's own. */
let admin: pg.Client;
let serverUrl: string;
let close: () => Promise<void>;
beforeAll(async () => {
  const folder = await createRunFolder();
  const server = await startPostgres({ runDir: folder.path });
  serverUrl = server.url;
  admin = new pg.Client({ connectionString: serverUrl });
  admin.on('error', () => {});
  await admin.connect();
  close = async () => {
    await admin.end();
    await server.close();
    await folder.remove();
  };
}, 60_000);
afterAll(() => close());
afterEach(async () => {
  await admin.query('DROP DATABASE app WITH (FORCE)');
  for (const role of ['backstop_api', 'backstop_purge', 'acme']) {
    await admin.query(`DROP ROLE IF EXISTS ${role}`);
  }
});

const owned = (owner: string, database = 'app') => urlOf(serverUrl, { role: owner, database });

async function createOwner(owner: string, rights: string): Promise<void> {
  await admin.query(`CREATE ROLE ${owner} LOGIN ${rights}`);
  await admin.query(`CREATE DATABASE app OWNER ${owner}`);
}

async function migrateAs(owner: string): Promise<string[]> {
  const warnings: string[] = [];
  await migrate(owned(owner), {
    log: (line) => void (line.startsWith('WARNING') && warnings.push(line)),
  });
  return warnings;
}

/** What a mutation of each Postgres store answers. */
async function answers(apiUrl: string): Promise<(number | string)[]> {
  const service = createService({ DATABASE_URL: apiUrl });
  const route = { name: 'probe', body: undefined, stateUrl: '/players/me' };
  const handlers = [
    service.mutation({ ...route, run: ({ once }) => once(async () => DONE) }),
    service.recordMutation({ ...route, run: ({ once }) => once(async () => DONE) }),
  ];
  try {
    const sent = handlers.map((handler) => send(handler, { principal: 'p', key: newKey() }));
    return (await Promise.all(sent)).map(({ code, status }) => code ?? status);
  } finally {
    await service.close();
  }
}

describe('a migration by an owner who did not make the roles (C127, deploy A9)', () => {
  const ofAnother = async () => {
    await admin.query('CREATE ROLE backstop_api LOGIN');
    await admin.query('CREATE ROLE backstop_purge LOGIN');
  };
  const limits = async (role: string) => {
    for (const name of ['statement_timeout', 'idle_in_transaction_session_timeout']) {
      await admin.query(`ALTER ROLE ${role} SET ${name} = '9s'`);
    }
  };

  test.each(['CREATEROLE', 'NOCREATEROLE'])(
    'an owner with %s is told in the log what the owner of the roles must run where they have no limits',
    async (rights) => {
      await ofAnother();
      await createOwner('acme', rights);
      const warnings = await migrateAs('acme');
      expect(await answers(owned('backstop_api'))).toEqual(['INTERNAL', 'INTERNAL']);
      const said = warnings.flatMap((line) => [...line.matchAll(/ALTER ROLE [^;]*/g)]).flat();
      expect(said).toContain(`ALTER ROLE backstop_api SET statement_timeout = '28s'`);
      expect(said).toHaveLength(12);
      for (const sql of said) await admin.query(sql);
      expect(await answers(owned('backstop_api'))).toEqual([200, 200]);
    },
  );

  test('roles that have their limits are left as they are, and a warning says so', async () => {
    await ofAnother();
    await createOwner('acme', 'CREATEROLE');
    for (const role of ['backstop_api', 'backstop_purge']) await limits(role);
    for (const name of ['idle', 'interval', 'count'].map((rest) => `tcp_keepalives_${rest}`)) {
      for (const role of ['backstop_api', 'backstop_purge']) {
        await admin.query(`ALTER ROLE ${role} SET ${name} = '7'`);
      }
    }
    await admin.query(`ALTER ROLE backstop_api SET client_connection_check_interval = '7s'`);
    await admin.query(`ALTER ROLE backstop_purge SET lock_timeout = '7s'`);
    const warnings = await migrateAs('acme');
    expect(warnings).toEqual([
      expect.stringMatching(/backstop_api was made by somebody else and is fit/),
      expect.stringMatching(/backstop_purge was made by somebody else and is fit/),
    ]);
    expect(await answers(owned('backstop_api'))).toEqual([200, 200]);
  });

  test('an owner who made the roles alters them, superuser or not', async () => {
    await createOwner('acme', 'CREATEROLE');
    expect(await migrateAs('acme')).toEqual([]);
    expect(await answers(owned('backstop_api'))).toEqual([200, 200]);
  });

  test('an owner without the right to create roles goes on with a role of their own', async () => {
    await createOwner('acme', 'NOCREATEROLE');
    const warnings = await migrateAs('acme');
    expect(warnings).toEqual(
      expect.arrayContaining([
        expect.stringContaining('backstop_api was left out'),
        expect.stringContaining('backstop_purge was left out'),
      ]),
    );
    await admin.query(`ALTER ROLE acme SET statement_timeout = '28s'`);
    await admin.query(`ALTER ROLE acme SET idle_in_transaction_session_timeout = '28s'`);
    expect(await answers(owned('acme'))).toEqual([200, 200]);
  });
});

test('the roles may call what they need where EXECUTE is revoked from PUBLIC by default (C127)', async () => {
  await createOwner('acme', 'CREATEROLE');
  const owner = new pg.Client({ connectionString: owned('acme') });
  await owner.connect();
  await owner.query('ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC');
  await owner.end();
  await migrateAs('acme');
  expect(await answers(owned('backstop_api'))).toEqual([200, 200]);
  const purge = new pg.Client({ connectionString: owned('backstop_purge') });
  await purge.connect();
  await purge.query('SELECT limit_lock_wait(5)').finally(() => purge.end());
});
