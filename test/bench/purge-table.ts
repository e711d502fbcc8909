import type pg from 'pg';

const TABLE = 'player_mutation_idempotency';
const TEMPLATE = 'bench_markers';

/** All expired, over ten minutes: 2,000 a second and more. */
export async function createTemplate(admin: pg.Client, rows: number): Promise<void> {
  await admin.query(`DROP TABLE IF EXISTS ${TEMPLATE}`);
  await admin.query(
    `CREATE UNLOGGED TABLE ${TEMPLATE} AS
     SELECT 'user-' || n % 5000 AS user_id, gen_random_uuid()::text AS request_id,
            now() - interval '2 hours' + n * interval '10 minutes' / ${rows} AS created_at
       FROM generate_series(1, ${rows}) n`,
  );
}

/** The same table each time: equally filled, vacuumed, analysed, all of it on disk. */
export async function fill(admin: pg.Client): Promise<void> {
  await admin.query(`TRUNCATE ${TABLE}`);
  await admin.query(`INSERT INTO ${TABLE} SELECT * FROM ${TEMPLATE}`);
  await admin.query(`VACUUM ANALYZE ${TABLE}`);
  await admin.query('CHECKPOINT');
}

export async function countMarkers(admin: pg.Client): Promise<number> {
  const { rows } = await admin.query<{ count: number }>(`SELECT count(*)::int FROM ${TABLE}`);
  return rows[0]?.count ?? Number.NaN;
}

/** What many a purge is: rows by id, oldest first, each locked before it is deleted. */
export async function deleteClassic(client: pg.Client, batchRows: number): Promise<number> {
  let total = 0;
  for (;;) {
    const { rowCount } = await client.query(
      `DELETE FROM ${TABLE} WHERE ctid IN (
         SELECT ctid FROM ${TABLE} WHERE created_at < now() - interval '1 hour'
          ORDER BY created_at LIMIT $1 FOR UPDATE SKIP LOCKED)`,
      [batchRows],
    );
    total += rowCount ?? 0;
    if ((rowCount ?? 0) < batchRows) return total;
  }
}

/** One DELETE of everything: no purge, and the limit of all of them. */
export async function deleteAll(client: pg.Client): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM ${TABLE} WHERE created_at < now() - interval '1 hour'`,
  );
  return rowCount ?? 0;
}
