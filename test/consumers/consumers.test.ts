/**
 * The library as strangers have it: packed, installed in an empty folder, and used there by a
 * project of its own (`project/`), on the oldest Node that package.json names and on this one.
 */
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';
import { createEmptyDatabase } from '../infra/support/empty-database.ts';
import { copyProject } from '../local/fixtures/project-copy.ts';
import { urlOf } from '../support/urls.ts';

const OLDEST = '22.0.0';
/** npm has binaries for Linux alone. */
const NODES =
  process.platform === 'linux' ? [OLDEST, process.versions.node] : [process.versions.node];

let folder: string;
/** With the library and what it brings: as for one middleware. */
let bare: string;
/** With everything that the library can use, too. */
let whole: string;
let packed: readonly string[];
/** What the compiler found in `project/`. */
let complaints: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'backstop-consumer-'));
  bare = join(folder, 'bare');
  whole = join(folder, 'whole');
  await cp(join(import.meta.dirname, 'project'), bare, { recursive: true });
  packed = await pack();
  await install(bare, ['--omit=dev', '--omit=optional', join(folder, 'lambda-backstop-0.1.0.tgz')]);
  await cp(bare, whole, { recursive: true });
  await install(whole, []);
  complaints = await compile();
});

afterAll(() => rm(folder, { recursive: true, force: true }));

test('the package holds what was built, its licence and its README', () => {
  const others = packed.filter((path) => !/^dist\/.+\.(?:js|d\.ts|sql)$/.test(path));
  expect(others.sort()).toEqual(['LICENSE', 'README.md', 'package.json']);
  expect(packed.some((path) => path.endsWith('.sql'))).toBe(true);
});

test('whoever wants one middleware installs no driver, no AWS SDK and no logger', async () => {
  expect(await packagesIn(join(bare, 'node_modules'))).toEqual([
    '@middy/core',
    '@middy/util',
    '@types/aws-lambda',
    '@types/node',
    '@types/pg',
    'cockatiel',
    'lambda-backstop',
    'pg-connection-string',
    'pg-int8',
    'pg-protocol',
    'pg-types',
    'postgres-array',
    'postgres-bytea',
    'postgres-date',
    'postgres-interval',
    'undici-types',
    'xtend',
  ]);
});

test('the oldest Node that package.json names is one that is tested', async () => {
  const { engines } = JSON.parse(await readFile(join(PROJECT_FOLDER, 'package.json'), 'utf8'));
  expect(engines).toEqual({ node: `>=${OLDEST.replace('.0.0', '')}` });
});

test.each(NODES)('the middleware alone serves plain JavaScript on Node %s (C118)', async (node) => {
  const { stdout } = await run(binaryOf(node), ['one-middleware.js'], bare);
  expect(JSON.parse(stdout)).toEqual({
    node,
    statuses: [201, 409, 400],
    outcomes: ['committed', 'already_exists'],
    keys: [['alice one', 'done']],
  });
});

test('a strict project compiles against the packed types, which refuse its wrong uses (C126)', () => {
  expect(complaints).toBe('');
});

test.each(NODES)(
  'a mutation of a strict project takes effect once on Node %s (C118)',
  async (node) => {
    const db = await createEmptyDatabase();
    const redisUrl = inject('redisUrl');
    const { stdout } = await run(binaryOf(node), ['build/mutation.js'], whole, {
      MIGRATOR_URL: db.adminUrl,
      DATABASE_URL: urlOf(db.adminUrl, { role: 'backstop_api' }),
      REDIS_URL: redisUrl,
      RUN: node,
    });
    const again = redisUrl ? { balance: 70 } : expect.objectContaining({ code: 'ALREADY_EXISTS' });
    expect(JSON.parse(stdout)).toEqual({
      node,
      migrations: true,
      answers: [
        [200, { balance: 70 }],
        [redisUrl ? 200 : 409, again],
        [412, expect.objectContaining({ code: 'VERSION_MISMATCH' })],
        [200, { balance: 40 }],
      ],
      outcomes: [
        'committed',
        redisUrl ? 'replayed' : 'already_exists',
        'version_mismatch',
        'committed',
      ],
      balance: 40,
    });
  },
);

/** Packs a copy: the build of this very folder may be somebody's. */
async function pack(): Promise<string[]> {
  const project = await copyProject({ modules: 'link' });
  try {
    for (const name of ['tsconfig.json', 'tsconfig.build.json', 'LICENSE', 'README.md']) {
      await cp(join(PROJECT_FOLDER, name), join(project.folder, name));
    }
    const { stdout } = await run(
      'npm',
      ['pack', '--json', '--pack-destination', folder],
      project.folder,
    );
    // What the build prints comes first.
    const [{ files }] = JSON.parse(stdout.slice(stdout.indexOf('[\n')));
    return files.map(({ path }: { path: string }) => path);
  } finally {
    await project.remove();
  }
}

async function install(project: string, options: readonly string[]): Promise<void> {
  const quiet = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];
  await run('npm', ['install', ...quiet, ...options], project);
}

async function compile(): Promise<string> {
  const compiler = join(PROJECT_FOLDER, 'node_modules/typescript/bin/tsc');
  const { stdout } = await run(process.execPath, [compiler], whole).catch(
    (error: { stdout: string }) => error,
  );
  return stdout;
}

function binaryOf(node: string): string {
  if (node === process.versions.node) return process.execPath;
  return join(whole, `node_modules/node-linux-${process.arch}/bin/node`);
}

async function packagesIn(modules: string): Promise<string[]> {
  const names = (await readdir(modules)).filter((name) => !name.startsWith('.'));
  const lists = names.map(async (name) =>
    name.startsWith('@')
      ? (await readdir(join(modules, name))).map((scoped) => `${name}/${scoped}`)
      : [name],
  );
  return (await Promise.all(lists)).flat().sort();
}

/** Without what `npm test` tells its own scripts, such as settings of this project's. */
function run(program: string, args: readonly string[], cwd: string, env: NodeJS.ProcessEnv = {}) {
  const { PATH, HOME, TMPDIR } = process.env;
  return promisify(execFile)(program, args, { cwd, env: { PATH, HOME, TMPDIR, ...env } });
}
