/** Tables as full as they are in operation, and what a row of them takes on disk. */
import type pg from 'pg';
import { encodeKept } from '../../shared/core/kept.ts';
import { type BenchPostgres, rounded } from './postgres.ts';
import type { BenchRun } from './run.ts';

const MARKERS = 'player_mutation_idempotency';

/** UUIDs that are random, or that begin with the time. */
export type Keys = 'v4' | 'v7';

const KEY: Readonly<Record<Keys, string>> = {
  v4: 'random',
  v7: `substr(time, 1, 8) || '-' || substr(time, 9) || '-7' || substr(random, 16)`,
};

/** With ids as an issuer gives them, 36 characters. */
export async function createPlayers(admin: pg.Client, count: number): Promise<string[]> {
  await admin.query('TRUNCATE players CASCADE');
  const { rows } = await admin.query<{ user_id: string }>(
    `INSERT INTO players (user_id, coins)
     SELECT md5(n::text)::uuid::text, 1000000000 FROM generate_series(1, ${count}) n
     RETURNING user_id`,
  );
  // Room on each page, as in operation: a row is updated where it stands.
  await admin.query('UPDATE players SET data_version = data_version + 1');
  await admin.query('VACUUM ANALYZE players');
  return rows.map((row) => row.user_id);
}

export interface Fill {
  readonly rows: number;
  /** The first so many, each as often as another. */
  readonly players: number;
  readonly keys: Keys;
}

/** An hour's worth up to now, inserted in the order of time. */
export async function fillMarkers(admin: pg.Client, fill: Fill): Promise<void> {
  await admin.query(`TRUNCATE ${MARKERS}`);
  await insertMarkers(admin, fill, 0, fill.rows);
  await admin.query(`VACUUM ANALYZE ${MARKERS}`);
}

async function insertMarkers(
  admin: pg.Client,
  { rows, players, keys }: Fill,
  from: number,
  to: number,
): Promise<void> {
  await admin.query(
    `INSERT INTO ${MARKERS} (user_id, request_id, created_at)
     SELECT md5((1 + floor(random() * ${players}))::text)::uuid::text, ${KEY[keys]}, at
       FROM (SELECT at, gen_random_uuid()::text AS random,
                    lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') AS time
               FROM (SELECT date_trunc('hour', now()) - interval '1 hour' + n * interval '1 hour' / ${rows} AS at
                       FROM generate_series(${from + 1}, ${to}) n) AS times) AS source`,
  );
}

/** The order of the columns in the primary key: the product's, or the other one. */
export async function keyFirst(admin: pg.Client, isKeyFirst: boolean): Promise<void> {
  await admin.query(`TRUNCATE ${MARKERS}`);
  await admin.query(
    `ALTER TABLE ${MARKERS} DROP CONSTRAINT ${MARKERS}_pkey,
       ADD PRIMARY KEY (${isKeyFirst ? 'request_id, user_id' : 'user_id, request_id'})`,
  );
}

export async function walBytes(admin: pg.Client): Promise<number> {
  const { rows } = await admin.query<{ bytes: string }>(
    `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS bytes`,
  );
  return Number(rows[0]?.bytes);
}

export async function measureRows(
  postgres: BenchPostgres,
  run: BenchRun,
): Promise<Record<string, number>> {
  const admin = await postgres.connect();
  const rows = run.isQuick ? 20_000 : 500_000;
  const players = rows / 20;
  const figures = await measureMarkers(admin, 'v4', { rows, players, keys: 'v4' });
  await keyFirst(admin, true);
  Object.assign(
    figures,
    await measureMarkers(admin, 'v7_key_first', { rows, players, keys: 'v7' }),
  );
  await keyFirst(admin, false);
  Object.assign(figures, await measureRecords(admin, rows / 5));
  run.progress(`rows: ${JSON.stringify(figures)}`);
  return figures;
}

/** The part of the table that is purged before autovacuum comes, by the table's settings. */
const ROUNDS_OF_A_LIFE = 20;
const LIVES = 2;

/** Filled, and after every row has been replaced twice: purged, vacuumed, inserted. */
async function measureMarkers(
  admin: pg.Client,
  name: string,
  fill: Fill,
): Promise<Record<string, number>> {
  await fillMarkers(admin, fill);
  const filled = await bytesPerRow(admin, MARKERS);
  const step = fill.rows / ROUNDS_OF_A_LIFE;
  let purgeWal = 0;
  for (let round = 0; round < ROUNDS_OF_A_LIFE * LIVES; round++) {
    await insertMarkers(admin, fill, fill.rows + round * step, fill.rows + (round + 1) * step);
    const before = await walBytes(admin);
    await admin.query(
      `DELETE FROM ${MARKERS} WHERE created_at <= (
         SELECT created_at FROM ${MARKERS} ORDER BY created_at OFFSET ${step - 1} LIMIT 1)`,
    );
    await admin.query(`VACUUM ${MARKERS}`);
    purgeWal += (await walBytes(admin)) - before;
  }
  const steady = await bytesPerRow(admin, MARKERS);
  return {
    [`row_bytes_${name}`]: filled.all,
    [`row_bytes_${name}_steady`]: steady.all,
    [`index_bytes_${name}_steady`]: steady.indexes,
    [`wal_bytes_purge_${name}`]: rounded(purgeWal / (fill.rows * LIVES), 0),
  };
}

/** Claimed and published as the store does it, with a vacuum now and then. */
async function measureRecords(admin: pg.Client, rows: number): Promise<Record<string, number>> {
  const table = 'idempotency_records';
  const body = '#'.repeat(300);
  const headers = { 'content-type': 'application/json' };
  const response = encodeKept({ statusCode: 200, headers, body, isBase64Encoded: false });
  await admin.query(`TRUNCATE ${table}`);
  for (let round = 0; round < ROUNDS_OF_A_LIFE; round++) {
    await admin.query(`DO $$
      DECLARE claim record; owner uuid; n int;
      BEGIN
        FOR n IN 1..${rows / ROUNDS_OF_A_LIFE} LOOP
          owner := gen_random_uuid();
          SELECT * INTO claim FROM claim_record(owner::text, sha256('POST /purchases'),
            sha256(owner::text::bytea), '1:' || repeat('f', 43), owner, 30000, now() + interval '1 hour');
          PERFORM publish_record(claim.id, owner, convert_to('${response}', 'UTF8'));
          COMMIT;
        END LOOP;
      END $$`);
    await admin.query(`VACUUM ${table}`);
  }
  return { row_bytes_record: (await bytesPerRow(admin, table)).all };
}

async function bytesPerRow(admin: pg.Client, table: string) {
  const { rows } = await admin.query<{ all: string; indexes: string; count: string }>(
    `SELECT pg_total_relation_size($1) AS all, pg_indexes_size($1) AS indexes,
            (SELECT count(*) FROM ${table}) AS count`,
    [table],
  );
  const { all, indexes, count } = rows[0] ?? { all: Number.NaN, indexes: Number.NaN, count: 1 };
  return {
    all: rounded(Number(all) / Number(count), 0),
    indexes: rounded(Number(indexes) / Number(count), 0),
  };
}
