/**
 * Real servers for the whole run: those of `npm start`, or containers (`SERVICES=docker`),
 * or the ones that DATABASE_URL, REDIS_URL and DYNAMODB_ENDPOINT name. Each test file makes
 * databases of its own from one migrated template. DynamoDB takes longest and few need it: they
 * wait for it themselves (`openDynamodb`).
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { migrateAll } from '../../functions/operations/migrations.ts';
import { environment, forgetPostgresVariables } from '../../infra/local/environment.ts';
import {
  type Service,
  type ServiceName,
  type Services,
  startServices,
} from '../../infra/local/services.ts';
import type { Containers } from './containers.ts';
import { servicesInContainers } from './sources.ts';
import { ROLE_PASSWORD, TEMPLATE, urlOf } from './urls.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    adminUrl: string;
    /** Empty where no Redis could be had. */
    redisUrl: string;
    /** Where it is, or will be in a moment. */
    dynamodbUrl: string;
    /** Holds the reason, once it is known that there is no DynamoDB. */
    noDynamodbFile: string;
    /** Where Node keeps what it has compiled for the programs of the tests: half of what each costs. */
    compileCache: string;
    /** Where the packaged service is, once a test has asked for it. */
    packageFolder: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { services, close } = await startShared();
  try {
    if (services.redis.from === 'nowhere' && process.env['CI']) {
      throw new Error(`CI needs a Redis, and there is none: ${services.redis.reason}`);
    }
    const adminUrl = services.postgres.url as string;
    await createTemplate(adminUrl);
    project.provide('adminUrl', adminUrl);
    project.provide('redisUrl', services.redis.url ?? '');
    const noDynamodbFile = join(services.runDir, 'no-dynamodb');
    project.provide('dynamodbUrl', services.dynamodb.url as string);
    project.provide('noDynamodbFile', noDynamodbFile);
    const packageFolder = await mkdtemp(join(tmpdir(), 'backstop-package-'));
    project.provide('packageFolder', packageFolder);
    project.provide('compileCache', join(services.runDir, 'compile-cache'));
    void sayWhyNot(services.dynamodb, noDynamodbFile);
    return async () => {
      await rm(packageFolder, { recursive: true, force: true });
      await close();
    };
  } catch (error) {
    await close();
    throw error;
  }
}

interface Shared {
  readonly services: Services;
  close(): Promise<void>;
}

async function startShared(): Promise<Shared> {
  const env = environment();
  if (!env['DATABASE_URL']) forgetPostgresVariables();
  const containers = await startInContainers(servicesInContainers(env));
  try {
    const services = await startServices({ env: { ...env, ...containers.urls } });
    const close = async () => {
      await services.close();
      await containers.close();
    };
    return { services, close };
  } catch (error) {
    await containers.close();
    throw error;
  }
}

async function startInContainers(names: readonly ServiceName[]): Promise<Containers> {
  if (names.length === 0) return { urls: {}, close: async () => {} };
  const { startContainers } = await import('./containers.ts');
  return startContainers(names);
}

async function sayWhyNot(dynamodb: Service, file: string): Promise<void> {
  const part = dynamodb.from === 'starting' ? await dynamodb.settled : dynamodb;
  // At the end of a run that did not wait for it the folder may be gone: so is whoever would read it.
  if (part.from === 'nowhere') await writeFile(file, part.reason).catch(() => {});
}

async function createTemplate(adminUrl: string): Promise<void> {
  const admin = new pg.Client({ connectionString: adminUrl });
  await admin.connect();
  try {
    await admin.query(`DROP DATABASE IF EXISTS ${TEMPLATE} WITH (FORCE)`);
    await admin.query(`CREATE DATABASE ${TEMPLATE}`);
    await migrateAll(urlOf(adminUrl, { database: TEMPLATE }));
    for (const role of ['backstop_api', 'backstop_purge']) {
      await admin.query(`ALTER ROLE ${role} PASSWORD '${ROLE_PASSWORD}'`);
    }
  } finally {
    await admin.end();
  }
}
