/**
 * Times go to the server and back whatever its session makes of a time as text. Under every
 * DateStyle but ISO, Postgres writes IST or CST and reads another zone than it wrote.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';

import { fromMicros, toMicros } from '../../../shared/postgres/microseconds.ts';
import { createPurge } from '../../../shared/service/index.ts';
import { createTestDatabase, type TestDatabase } from '../../support/database.ts';
import { insertMarkers, KEPT_MINUTES, markersLeft } from './support.ts';

let db: TestDatabase;
let name: string;
beforeAll(async () => {
  db = await createTestDatabase();
  name = (await db.sql<{ name: string }>('SELECT current_database() AS name'))[0]?.name as string;
});
afterAll(() => db.drop());
beforeEach(() => db.sql('TRUNCATE player_mutation_idempotency, idempotency_records'));

async function records(state: 'completed' | 'in_progress', ages: Record<string, number>) {
  for (const [fingerprint, hours] of Object.entries(ages)) {
    await db.sql(
      `INSERT INTO idempotency_records (account_id, endpoint_hash, key_hash, fingerprint, status,
                                        lease_owner, lease_expires_at, created_at, completed_at, response)
       SELECT 'a', sha256('POST /x'), sha256($1::text::bytea), $1, $2, gen_random_uuid(),
              CASE $2 WHEN 'in_progress' THEN at END, at,
              CASE $2 WHEN 'completed' THEN at END, CASE $2 WHEN 'completed' THEN '{}'::bytea END
         FROM (SELECT now() - $3::float8 * interval '1 hour' AS at) t`,
      [fingerprint, state, hours],
    );
  }
}

const STYLES = ['ISO, MDY', 'SQL, DMY', 'Postgres, MDY', 'German, DMY'];
const ZONES = ['Asia/Kolkata', 'Asia/Shanghai'];
const SESSIONS = STYLES.flatMap((style) => ZONES.map((zone) => ({ style, zone })));

describe.each(SESSIONS)('DateStyle "$style" in $zone (core 12)', ({ style, zone }) => {
  test('a row that has expired goes, and one that has not stays', async () => {
    await db.sql(`ALTER DATABASE ${name} SET datestyle = '${style}'`);
    await db.sql(`ALTER DATABASE ${name} SET timezone = '${zone}'`);
    onTestFinished(async () => {
      await db.sql(`ALTER DATABASE ${name} RESET ALL`);
    });
    // A backlog of a day, as an unswept table has it, up to just past the end; and live rows.
    await insertMarkers(db, 50, { ageMinutes: 24 * 60, spreadSeconds: 22 * 3600, prefix: 'old ' });
    await insertMarkers(db, 5, { ageMinutes: KEPT_MINUTES + 1, prefix: 'just ' });
    await insertMarkers(db, 3, {
      ageMinutes: KEPT_MINUTES - 1,
      spreadSeconds: 3600,
      prefix: 'live ',
    });
    await records('completed', { 'old completed': 60, 'live completed': 47 });
    await records('in_progress', { 'old abandoned': 60, 'live abandoned': 47 });
    const purge = createPurge({ DATABASE_URL: db.apiUrl, PURGE_DATABASE_URL: db.purgeUrl });
    onTestFinished(() => purge.close());
    expect(await purge.run({})).toMatchObject({ rows: 57, drained: true, leftRows: 0, failed: [] });
    expect(await markersLeft(db)).toEqual(['live 1', 'live 2', 'live 3']);
    const left = await db.sql('SELECT fingerprint FROM idempotency_records ORDER BY 1');
    expect(left.map(({ fingerprint }) => fingerprint)).toEqual([
      'live abandoned',
      'live completed',
    ]);
  });
});

test('a time is the same to the microsecond on its way out and back, until 2255 (core 12)', async () => {
  const [row] = await db.sql<{ wrong: number; all: number }>(
    `SELECT count(*)::int AS all, (count(*) FILTER (WHERE ${fromMicros(toMicros('at'))} <> at))::int AS wrong
       FROM (SELECT timestamptz '2026-11-01 05:59:59Z' + n * interval '1 microsecond' AS at
               FROM generate_series(1, 20000) n
             UNION ALL
             SELECT timestamptz '2255-01-01Z' + n * interval '1 microsecond' FROM generate_series(1, 20000) n
             UNION ALL
             SELECT timestamptz '1970-01-01Z' + n * interval '1 microsecond' FROM generate_series(1, 20000) n) t`,
  );
  expect(row).toEqual({ all: 60_000, wrong: 0 });
});
