/** TLS to Postgres, and roles that sign in with tokens. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import tls from 'node:tls';
import { promisify } from 'node:util';
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  inject,
  onTestFinished,
  test,
  vi,
} from 'vitest';
import { createRunFolder } from '../../../infra/local/run-folder.ts';
import { rdsToken } from '../../../shared/postgres/rds-token.ts';
import { createPurge } from '../../../shared/service/index.ts';
import { createAuthority } from '../../support/certificates.ts';
import { startTlsPostgres, type TlsPostgres } from '../../support/postgres-tls.ts';
import { type Answer, newKey, send } from '../../support/requests.ts';
import { testService } from '../../support/service.ts';
import { takeCoin, testHandler } from '../../support/test-handler.ts';

let postgres: TlsPostgres;
let principal: string;
beforeAll(async () => {
  postgres = await startTlsPostgres();
});
afterAll(() => postgres.close());
beforeEach(async () => {
  principal = newKey();
  await postgres.admin.query('INSERT INTO players (user_id, coins) VALUES ($1, 1000)', [principal]);
});

const setPassword = (role: string, password: string) =>
  postgres.admin.query(`ALTER ROLE ${role} PASSWORD '${password}'`);

const coins = async () => {
  const { rows } = await postgres.admin.query('SELECT coins FROM players WHERE user_id = $1', [
    principal,
  ]);
  return Number(rows[0]?.coins);
};

const spend = (service: ReturnType<typeof testService>): Promise<Answer> =>
  send(testHandler(service, takeCoin), { principal, key: newKey(), body: {} });

describe('a connection with TLS', () => {
  const authorities = tls.getCACertificates('default');
  beforeEach(() => setPassword('backstop_api', 'hunter2'));
  afterEach(() => tls.setDefaultCACertificates(authorities));

  const at = (host: string, rest = '') =>
    testService({
      apiUrl: `postgres://backstop_api:hunter2@${host}:${postgres.port}/postgres?sslmode=verify-full${rest}`,
    });
  const ownAuthority = () => `&sslrootcert=${postgres.authorityFile}`;

  async function expectRefused(service: ReturnType<typeof testService>, why: string) {
    await expect(service.database.pool.connect()).rejects.toThrow(why);
    await expect(service.database.connectAside()).rejects.toThrow(why);
    const answer = await spend(service);
    expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([
      503,
      'UNAVAILABLE',
      '1',
    ]);
    expect(await coins()).toBe(1000);
  }

  test('a server that the authority of sslrootcert vouches for is accepted', async () => {
    expect((await spend(at('localhost', ownAuthority()))).status).toBe(200);
    expect(await coins()).toBe(999);
  });

  test('a server that an authority of the process vouches for is accepted', async () => {
    // As NODE_EXTRA_CA_CERTS does.
    tls.setDefaultCACertificates([...authorities, postgres.authority]);
    expect((await spend(at('localhost'))).status).toBe(200);
  });

  test('an authority that nobody trusts is refused', () =>
    expectRefused(at('localhost'), 'unable to verify the first certificate'));

  test('an authority other than that of sslrootcert is refused', async () => {
    const folder = await createRunFolder();
    onTestFinished(() => folder.remove());
    const file = join(folder.path, 'other.pem');
    await writeFile(file, createAuthority('The authority of this test').certificate);
    await expectRefused(at('localhost', `&sslrootcert=${file}`), 'certificate');
  });

  test('a server of another name is refused', () =>
    expectRefused(at('127.0.0.1', ownAuthority()), "does not match certificate's altnames"));

  test('a server without TLS is refused', () => {
    const url = new URL(inject('adminUrl'));
    url.search = 'sslmode=verify-full';
    return expectRefused(testService({ apiUrl: url.href }), 'does not support SSL');
  });
});

describe('a sign-in with IAM tokens', () => {
  const START = Date.UTC(2026, 10, 30);
  beforeEach(() => {
    vi.stubEnv('AWS_ACCESS_KEY_ID', 'AKIDEXAMPLE');
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'secret');
    vi.stubEnv('AWS_SESSION_TOKEN', 'session');
    vi.useFakeTimers({ toFake: ['Date'], now: START });
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllEnvs();
  });

  const urlOf = (role: string) =>
    `postgres://${role}@localhost:${postgres.port}/postgres?sslmode=verify-full&sslrootcert=${postgres.authorityFile}`;
  const environment = () => ({
    DATABASE_URL: urlOf('backstop_api'),
    PURGE_DATABASE_URL: urlOf('backstop_purge'),
    BACKSTOP_DATABASE_AUTH: 'iam',
    BACKSTOP_POOL_MAX: '1',
    AWS_REGION: 'eu-central-1',
  });

  /** From now on, of all passwords, the role's token of this second is right. */
  async function acceptTokenOfNow(role: string): Promise<void> {
    await setPassword(role, await rdsToken(urlOf(role), 'eu-central-1')());
  }

  const cutAll = () =>
    postgres.admin.query(
      `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'backstop_api'`,
    );

  test('each connection signs in with its own token, in the pool and beside it', async () => {
    await acceptTokenOfNow('backstop_api');
    const service = testService({ apiUrl: urlOf('backstop_api') }, environment());
    expect((await spend(service)).status).toBe(200);

    vi.setSystemTime(START + 3_600_000);
    await acceptTokenOfNow('backstop_api');
    await (await service.database.connectAside()).end();
    expect((await spend(service)).status).toBe(200); // The first connection lives on.
    await cutAll();
    expect((await spend(service)).status).toBe(200);
    expect(await coins()).toBe(997);
  });

  test('an outdated token is refused with 503 and no effect', async () => {
    await acceptTokenOfNow('backstop_api');
    vi.setSystemTime(START + 1000);
    const service = testService({ apiUrl: urlOf('backstop_api') }, environment());
    const answer = await spend(service);
    expect([answer.status, answer.code]).toEqual([503, 'UNAVAILABLE']);
    expect(await coins()).toBe(1000);
  });

  test('the command `npm run purge` signs in with a token too (house A3)', async () => {
    await acceptTokenOfNow('backstop_purge');
    await postgres.admin.query(
      `INSERT INTO player_mutation_idempotency VALUES ($1, 'old', now() - interval '3 days')`,
      [principal],
    );
    // The clock of the process as the token wants it.
    const clock = `data:text/javascript,Date.now = () => ${START};
      globalThis.Date = class extends Date { constructor(...at) { super(...(at.length ? at : [${START}])); } };`;
    const command = join(import.meta.dirname, '../../../infra/local/purge.ts');
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ['--import', clock, command, '--until-drained'],
      { env: { ...process.env, ...environment() } },
    );
    expect(stdout).toMatch(/^deleted 1 rows in /m);
  });

  test('the purge signs in as its own role', async () => {
    await setPassword('backstop_api', 'not the purge');
    await acceptTokenOfNow('backstop_purge');
    await postgres.admin.query(
      `INSERT INTO player_mutation_idempotency VALUES ($1, 'old', now() - interval '3 days')`,
      [principal],
    );
    const purge = createPurge(environment());
    onTestFinished(() => purge.close());
    expect(await purge.run({})).toMatchObject({ rows: 1 });
  });
});
