/**
 * The migrations as a deployment runs them: on a real Postgres, with a server that stands for
 * Secrets Manager (its one call, as the SDK sends it) and one for the URL that CloudFormation
 * waits at.
 */
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { migrateAll } from '../../functions/operations/migrations.ts';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
import { allowIamLogins } from '../../shared/postgres/iam-logins.ts';
import { migrate } from '../../shared/postgres/migrate.ts';
import { sessionUrl } from '../../shared/service/migration/session-url.ts';
import { createMigration, type Migrate } from '../../shared/service/migration.ts';
import { openSession } from '../support/database.ts';
import { eventually } from '../support/waiting.ts';
import { FOLDERS, LIBRARY, migrationsIn, secretsManager } from './support/deployment.ts';
import { createEmptyDatabase, type EmptyDatabase } from './support/empty-database.ts';
import { serveHttp } from './support/http-server.ts';

const SECRET_ARN = 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:master';
const OURS = migrationsIn(FOLDERS[0]);
const THE_SERVICES = migrationsIn(FOLDERS[1]);
const ALL = [...OURS, ...THE_SERVICES];
const OWN = {
  directory: join(PROJECT_FOLDER, FOLDERS[1]),
  migrationsTable: 'service_migrations',
};

afterEach(() => vi.unstubAllEnvs());

const context = { getRemainingTimeInMillis: () => 60_000 };

function migrationOf(db: Pick<EmptyDatabase, 'bareUrl'>, migrate: Migrate = migrateAll) {
  return createMigration(migrate, () => ({ databaseUrl: db.bareUrl, secretArn: SECRET_ARN }));
}

/** The library's migrations alone, from another folder. */
function from(directory: string): Migrate {
  return (url, log) => migrate(url, { directory, log });
}

function request(type: 'Create' | 'Update' | 'Delete', responseUrl: string) {
  return {
    RequestType: type,
    ResponseURL: `${responseUrl}/answer?signature=s`,
    StackId: 'arn:aws:cloudformation:eu-central-1:123456789012:stack/backstop-dev/1',
    RequestId: 'request-1',
    LogicalResourceId: 'Migrations',
    ResourceType: 'Custom::Migrations',
  };
}

async function cloudFormation(answer: (n: number) => { status: number } = () => ({ status: 200 })) {
  const server = await serveHttp(answer);
  const answers = () => server.received.map(({ body }) => JSON.parse(body));
  return { ...server, answers };
}

test('an empty database is migrated and CloudFormation is told SUCCESS', async () => {
  const db = await createEmptyDatabase();
  await secretsManager(db.master);
  const waiting = await cloudFormation();
  const migrated = await migrationOf(db)(request('Create', waiting.url), context);
  expect(migrated).toEqual({ applied: ALL, iamLogins: [] });
  expect(waiting.answers()).toEqual([
    {
      Status: 'SUCCESS',
      PhysicalResourceId: 'backstop-migrations',
      StackId: 'arn:aws:cloudformation:eu-central-1:123456789012:stack/backstop-dev/1',
      RequestId: 'request-1',
      LogicalResourceId: 'Migrations',
    },
  ]);
  // The URL is signed for a PUT without a content type.
  expect(waiting.received[0]).toMatchObject({ method: 'PUT', contentType: undefined });
  const timeouts = await db.sql<{ setting: string }>(
    `SELECT unnest(setconfig) AS setting FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole
      WHERE r.rolname = 'backstop_api'`,
  );
  expect(timeouts.map(({ setting }) => setting)).toContain('statement_timeout=28s');
});

test('one of two migrations at once applies everything, the other nothing, and both succeed', async () => {
  const db = await createEmptyDatabase();
  await secretsManager(db.master);
  const waiting = await cloudFormation();
  const run = migrationOf(db);
  const both = await Promise.all([
    run(request('Create', waiting.url), context),
    run(request('Create', waiting.url), context),
  ]);
  expect(both.map(({ applied }) => applied.length).sort()).toEqual([0, ALL.length]);
  expect(waiting.answers().map(({ Status }) => Status)).toEqual(['SUCCESS', 'SUCCESS']);
});

test('any event sent by hand migrates and answers what was done, and nothing the second time', async () => {
  const db = await createEmptyDatabase();
  await secretsManager(db.master);
  const run = migrationOf(db);
  expect(await run({}, context)).toEqual({ applied: ALL, iamLogins: [] });
  expect(await run({}, context)).toEqual({ applied: [], iamLogins: [] });
});

test('an older release finds a newer schema and leaves it alone: a rollback succeeds', async () => {
  const db = await createEmptyDatabase();
  await secretsManager(db.master);
  await migrationOf(db)({}, context);
  const older = await copyOfMigrations();
  await rm(join(older, `${OURS.at(-1)}.sql`));
  const waiting = await cloudFormation();
  await migrationOf(db, from(older))(request('Update', waiting.url), context);
  expect(waiting.answers()).toMatchObject([{ Status: 'SUCCESS' }]);
  expect(await db.sql('SELECT name FROM backstop_migrations ORDER BY name')).toEqual(
    OURS.map((name) => ({ name })),
  );
});

test('both roles of the service log in with tokens where there is a role rds_iam', async () => {
  const db = await createEmptyDatabase();
  await secretsManager(db.master);
  const run = migrationOf(db);
  await run({}, context);
  await db.sql('CREATE ROLE rds_iam');
  onTestFinished(async () => {
    await db.sql('DROP ROLE rds_iam');
  });
  const iamLogins = ['backstop_api', 'backstop_purge'];
  // At once, since deployments may be.
  const all = await Promise.all(Array.from({ length: 10 }, () => allowIamLogins(db.adminUrl)));
  expect(all).toEqual(all.map(() => iamLogins));
  expect(await run({}, context)).toEqual({ applied: [], iamLogins });
});

test("the library's tables and the service's are recorded apart, and the library is whole alone", async () => {
  const db = await createEmptyDatabase();
  const tables = async () => {
    const rows = await db.sql<{ name: string }>(
      `SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' ORDER BY 1`,
    );
    return rows.map(({ name }) => name);
  };
  expect(await migrate(db.adminUrl)).toEqual(OURS);
  const library = [
    'backstop_migrations',
    'idempotency_records',
    'idempotency_retentions',
    'player_mutation_idempotency',
  ];
  expect(await tables()).toEqual(library);
  expect(await migrateAll(db.adminUrl)).toEqual(THE_SERVICES);
  const service = ['players', 'products', 'purchases', 'service_migrations'];
  expect(await tables()).toEqual([...library, ...service].sort());
  expect(await db.sql('SELECT name FROM service_migrations ORDER BY name')).toEqual(
    THE_SERVICES.map((name) => ({ name })),
  );
});

test('a database of an earlier release is refused with what to do, and nothing in it is changed', async () => {
  const db = await createEmptyDatabase();
  // As that release left it.
  await db.sql(`CREATE TABLE backstop_migrations
    (id serial PRIMARY KEY, name varchar(255) NOT NULL, run_on timestamp NOT NULL)`);
  await db.sql(`INSERT INTO backstop_migrations (name, run_on)
    SELECT name, now() FROM unnest(ARRAY['0001_tables', '0002_roles', '0003_autovacuum']) AS name`);
  const contents = () =>
    db.sql(`SELECT relname, relkind, pg_relation_filenode(oid) FROM pg_class
             WHERE relnamespace = 'public'::regnamespace ORDER BY 1`);
  const before = await contents();
  await expect(migrateAll(db.adminUrl)).rejects.toThrow(
    /backstop_migrations lists 0001_tables.*nothing was changed: migrate an empty database/,
  );
  await expect(migrate(db.adminUrl, OWN)).rejects.toThrow('nothing was changed');
  expect(await contents()).toEqual(before);
  expect(await db.sql('SELECT name FROM backstop_migrations')).toHaveLength(3);
});

test("one's own migrations without a table of their own are refused before anything is done", async () => {
  const nowhere = 'postgres://127.0.0.1:9/backstop';
  await expect(migrate(nowhere, { directory: OWN.directory })).rejects.toThrow(
    /there is no 0001_markers\.sql in .*functions\/migrations; pass .*\{ migrationsTable \}/,
  );
});

test('a migration that fails is rolled back, and CloudFormation is told why', async () => {
  const db = await createEmptyDatabase();
  await secretsManager(db.master);
  const broken = await copyOfMigrations();
  await writeFile(
    join(broken, '0099_broken.sql'),
    'CREATE TABLE half (id int);\nSELECT no_such_column FROM half;\n',
  );
  const waiting = await cloudFormation();
  await migrationOf(db, from(broken))(request('Update', waiting.url), context);
  const [answer] = waiting.answers();
  expect(answer.Status).toBe('FAILED');
  expect(answer.Reason).toContain('column "no_such_column" does not exist');
  expect(await db.sql(`SELECT to_regclass('half') AS half`)).toEqual([{ half: null }]);
  // By hand it is the caller who hears it.
  await expect(migrationOf(db, from(broken))({}, context)).rejects.toThrow('no_such_column');
});

test('a login that fails is reported, and the password is not', async () => {
  const db = await createEmptyDatabase();
  const outdated = { username: 'backstop_test_nobody', password: 'outdated-password' };
  await secretsManager(outdated);
  const waiting = await cloudFormation();
  await migrationOf(db)(request('Create', waiting.url), context);
  const [answer] = waiting.answers();
  expect(answer).toMatchObject({ Status: 'FAILED' });
  // As the server of the tests checks passwords or not.
  expect(answer.Reason).toMatch(/authentication failed|"backstop_test_nobody" does not exist/);
  expect(answer.Reason).not.toContain(outdated.password);
});

test('a password with what a URL must not contain reaches the driver as it is', () => {
  const master = { username: 'admin@home', password: 'p@ss/wörd:%41#?&' };
  const url = sessionUrl('postgres://db.example:5432/backstop?sslmode=verify-full', master, 1500);
  const { user, password, host, database } = new pg.Client({ connectionString: url });
  expect({ user, password, host, database }).toEqual({
    user: master.username,
    password: master.password,
    host: 'db.example',
    database: 'backstop',
  });
});

test('a secret that cannot be reached is FAILED, with the secret and what is needed', async () => {
  vi.stubEnv('AWS_ENDPOINT_URL_SECRETS_MANAGER', 'http://127.0.0.1:9');
  await secretsManager({}, { keepEndpoint: true });
  const waiting = await cloudFormation();
  const nowhere = { bareUrl: 'postgres://127.0.0.1:9/backstop' };
  await migrationOf(nowhere)(request('Create', waiting.url), context);
  const [answer] = waiting.answers();
  expect(answer.Status).toBe('FAILED');
  expect(answer.Reason).toContain(SECRET_ARN);
  expect(answer.Reason).toContain('an endpoint in the VPC');
});

test('a wrong configuration reaches CloudFormation too', async () => {
  const waiting = await cloudFormation();
  const run = createMigration(migrateAll, () => {
    throw new Error('MIGRATE_SECRET_ARN is not set');
  });
  await run(request('Create', waiting.url), context);
  expect(waiting.answers()).toMatchObject([
    { Status: 'FAILED', Reason: 'MIGRATE_SECRET_ARN is not set' },
  ]);
});

test('a Delete is answered with SUCCESS, and touches nothing', async () => {
  const waiting = await cloudFormation();
  const physical = { PhysicalResourceId: 'of-before' };
  const gone = migrationOf({ bareUrl: 'postgres://127.0.0.1:9/backstop' });
  expect(await gone({ ...request('Delete', waiting.url), ...physical }, context)).toEqual({
    applied: [],
    iamLogins: [],
  });
  expect(waiting.answers()).toMatchObject([{ Status: 'SUCCESS', ...physical }]);
});

test('a migration that takes longer than the function may is ended by the server, and answered before', async () => {
  const db = await createEmptyDatabase();
  await secretsManager(db.master);
  const slow = await copyOfMigrations();
  await writeFile(join(slow, '0099_slow.sql'), 'SELECT pg_sleep(600);\n');
  const waiting = await cloudFormation();
  // Two seconds, beside what is kept free for the answer.
  const short = { getRemainingTimeInMillis: () => 32_000 };
  await migrationOf(db, from(slow))(request('Update', waiting.url), short);
  const [answer] = waiting.answers();
  expect(answer.Status).toBe('FAILED');
  expect(answer.Reason).toMatch(/statement timeout|Not finished after 2 s/);
  await eventually(async () => {
    const running = await db.sql(
      `SELECT query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
    );
    return running.length === 0;
  }, 'its session gone');
});

test('a lock that another deployment holds for too long is answered FAILED too', async () => {
  const db = await createEmptyDatabase();
  await secretsManager(db.master);
  const slow = await copyOfMigrations();
  // Until the test lets it go on.
  const gate = await openSession(db.adminUrl);
  await gate.query('SELECT pg_advisory_lock(1)');
  await writeFile(join(slow, '0000_slow.sql'), 'SELECT pg_advisory_xact_lock(1);\n');
  const waiting = await cloudFormation();
  const first = migrationOf(db, from(slow))({}, context);
  await eventually(async () => {
    const blocked = await db.sql(
      `SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`,
    );
    return blocked.length === 1;
  }, 'the first, at the gate');
  const short = { getRemainingTimeInMillis: () => 31_000 };
  await migrationOf(db, from(slow))(request('Create', waiting.url), short);
  expect(waiting.answers()).toMatchObject([{ Status: 'FAILED' }]);
  await gate.query('SELECT pg_advisory_unlock(1)');
  expect(await first).toMatchObject({ applied: ['0000_slow', ...OURS] });
});

test('an answer that does not get through is sent again, and then the invocation fails', async () => {
  const flaky = await cloudFormation((n) => ({ status: n < 2 ? 503 : 200 }));
  await migrationOf({ bareUrl: 'unused' })(request('Delete', flaky.url), context);
  expect(flaky.answers().map(({ Status }) => Status)).toEqual(Array(3).fill('SUCCESS'));

  const refusing = await cloudFormation(() => ({ status: 403 }));
  const deleting = migrationOf({ bareUrl: 'unused' })(request('Delete', refusing.url), context);
  await expect(deleting).rejects.toThrow('answered 403');
});

async function copyOfMigrations(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'backstop-migrations-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  await cp(LIBRARY, directory, { recursive: true });
  return directory;
}
