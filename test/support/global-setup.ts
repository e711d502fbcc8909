/**
 * Real servers for the whole run: those of `npm start`, or the ones that
 * DATABASE_URL and REDIS_URL name. Each test file makes databases of its own from
 * one migrated template.
 */
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { startServices } from '../../infra/local/services.ts';
import { migrate } from '../../shared/postgres/migrate.ts';
import { ROLE_PASSWORD, TEMPLATE, urlOf } from './urls.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    adminUrl: string;
    /** Empty where no Redis could be had. */
    redisUrl: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const services = await startServices();
  try {
    if (services.redis.from === 'nowhere' && process.env['CI']) {
      throw new Error(`CI needs a Redis, and there is none: ${services.redis.reason}`);
    }
    const adminUrl = services.postgres.url as string;
    await createTemplate(adminUrl);
    project.provide('adminUrl', adminUrl);
    project.provide('redisUrl', services.redis.url ?? '');
    return () => services.close();
  } catch (error) {
    await services.close();
    throw error;
  }
}

async function createTemplate(adminUrl: string): Promise<void> {
  const admin = new pg.Client({ connectionString: adminUrl });
  await admin.connect();
  try {
    await admin.query(`DROP DATABASE IF EXISTS ${TEMPLATE} WITH (FORCE)`);
    await admin.query(`CREATE DATABASE ${TEMPLATE}`);
    await migrate(urlOf(adminUrl, { database: TEMPLATE }));
    for (const role of ['backstop_api', 'backstop_purge']) {
      await admin.query(`ALTER ROLE ${role} PASSWORD '${ROLE_PASSWORD}'`);
    }
  } finally {
    await admin.end();
  }
}
