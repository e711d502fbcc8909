import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { inject, onTestFinished } from 'vitest';
import { urlOf } from '../../support/urls.ts';

export interface EmptyDatabase {
  /** As the superuser. */
  readonly adminUrl: string;
  /** As the superuser. */
  sql<Row extends pg.QueryResultRow>(text: string): Promise<Row[]>;
  /** As the function of the migrations is told it: no user, no password. */
  readonly bareUrl: string;
  /** What Secrets Manager would hold of the superuser. */
  readonly master: { readonly username: string; readonly password: string };
}

/** A database without anything in it, gone when the test ends. */
export async function createEmptyDatabase(): Promise<EmptyDatabase> {
  const database = `backstop_empty_${randomUUID().replaceAll('-', '')}`;
  const admin = new pg.Client({ connectionString: inject('adminUrl') });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${database}`);
  const url = new URL(urlOf(inject('adminUrl'), { database }));
  const own = new pg.Client({ connectionString: url.href });
  await own.connect();
  onTestFinished(async () => {
    await own.end();
    await admin.query(`DROP DATABASE ${database} WITH (FORCE)`);
    await admin.end();
  });
  const adminUrl = url.href;
  const master = {
    username: decodeURIComponent(url.username),
    password: decodeURIComponent(url.password),
  };
  url.username = '';
  url.password = '';
  return {
    adminUrl,
    sql: async (text) => (await own.query(text)).rows as never,
    bareUrl: url.href,
    master,
  };
}
