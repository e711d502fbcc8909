/**
 * `npm run mutants [-- ID …]`: plants one fault at a time in a copy of the source, and
 * runs the tests that must catch it. A mutant that survives is a test that cannot
 * fail. The servers are started once, for all of them.
 */
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { startServices } from '../../infra/local/services.ts';
import { MUTANTS, type Mutant } from './mutants.ts';

const project = resolve(import.meta.dirname, '../..');
const COPIED = [
  'functions',
  'infra',
  'shared',
  'test',
  'package.json',
  'serverless.yml',
  'tsconfig.json',
  'vitest.config.ts',
  'README.md',
];
const run = promisify(execFile);

interface Outcome {
  readonly verdict: 'caught' | 'SURVIVED' | 'BROKEN';
  readonly detail: string;
}

async function main(ids: string[]): Promise<number> {
  const unknown = ids.filter((id) => !MUTANTS.some((mutant) => mutant.id === id));
  if (unknown.length > 0) {
    console.error(
      `no such mutant: ${unknown.join(', ')}; there are ${MUTANTS.map(({ id }) => id).join(', ')}`,
    );
    return 2;
  }
  const chosen = ids.length > 0 ? MUTANTS.filter(({ id }) => ids.includes(id)) : MUTANTS;
  const services = await startServices();
  let failures = 0;
  try {
    const env = {
      ...process.env,
      DATABASE_URL: services.postgres.url,
      REDIS_URL: services.redis.url,
    };
    for (const mutant of chosen) {
      const { verdict, detail } = await judge(mutant, env as NodeJS.ProcessEnv);
      if (verdict !== 'caught') failures++;
      console.log(`${verdict.padEnd(8)} ${mutant.id}: ${mutant.fault}\n         ${detail}`);
    }
  } finally {
    await services.close();
  }
  console.log(`${chosen.length - failures} of ${chosen.length} mutants caught`);
  return failures === 0 ? 0 : 1;
}

async function judge(mutant: Mutant, env: NodeJS.ProcessEnv): Promise<Outcome> {
  const copy = await mkdtemp(join(tmpdir(), 'backstop-mutant-'));
  try {
    for (const name of COPIED) await cp(join(project, name), join(copy, name), { recursive: true });
    await symlink(join(project, 'node_modules'), join(copy, 'node_modules'));
    const planted = await plant(mutant, copy);
    return planted ?? (await test(mutant, copy, env));
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
}

async function plant({ file, from, to, all }: Mutant, copy: string): Promise<Outcome | undefined> {
  const path = join(copy, file);
  const source = await readFile(path, 'utf8');
  const places = source.split(from).length - 1;
  if (places !== 1 && !(all && places > 1)) {
    return {
      verdict: 'BROKEN',
      detail: `${file} does not hold its text exactly once: mend the mutant`,
    };
  }
  await writeFile(
    path,
    source.replaceAll(from, () => to),
  );
  return undefined;
}

interface Report {
  readonly numFailedTests: number;
  readonly testResults: { assertionResults: { status: string; fullName: string }[] }[];
}

/** Caught is when a test that ran has failed, and not when nothing could be run. */
async function test(mutant: Mutant, copy: string, env: NodeJS.ProcessEnv): Promise<Outcome> {
  const output = join(copy, 'report.json');
  const pattern = mutant.name ? ['-t', mutant.name] : [];
  const args = [
    'vitest',
    'run',
    ...mutant.tests,
    ...pattern,
    // One failure is enough; and a fault may make a test hang, which the suite waits for long.
    '--bail=1',
    '--testTimeout=60000',
    '--reporter=json',
    `--outputFile=${output}`,
  ];
  await run('npx', args, { cwd: copy, env, maxBuffer: 1 << 28 }).catch(() => {});
  const report = await readFile(output, 'utf8').then(
    (text) => JSON.parse(text) as Report,
    () => undefined,
  );
  if (!report) return { verdict: 'BROKEN', detail: 'the tests did not run' };
  const failed = report.testResults
    .flatMap(({ assertionResults }) => assertionResults)
    .filter(({ status }) => status === 'failed');
  if (failed.length === 0)
    return { verdict: 'SURVIVED', detail: `all of ${mutant.tests.join(' ')} passed` };
  return {
    verdict: 'caught',
    detail: `${failed.length} failed, such as: ${failed[0]?.fullName.trim()}`,
  };
}

process.exitCode = await main(process.argv.slice(2));
