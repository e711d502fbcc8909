import {
  afterAll,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
  vi,
} from 'vitest';
import type { Queryable } from '../../../shared/postgres/pool.ts';
import { createTestDatabase, openSession, type TestDatabase } from '../../support/database.ts';
import { eventually } from '../../support/waiting.ts';
import {
  countDeadlocks,
  countLeft,
  insertMarkers,
  isDelete,
  KEPT_MINUTES,
  markersLeft,
  purgePool,
  type Statement,
  spiedOn,
  sum,
  sweep,
} from './support.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(() => db.sql('TRUNCATE player_mutation_idempotency'));

test('a sweep goes on in batches of the set size, exactly as many as it takes', async () => {
  await insertMarkers(db, 2001, { spreadSeconds: 1 });
  expect(await sweep(purgePool(db))).toMatchObject({ batchRows: [1000, 1000, 1] });
});

test('no batch begins before the one before it ended', async () => {
  await insertMarkers(db, 5000, { spreadSeconds: 5 });
  /** Where each look began, by the end of its slice. */
  const marks = new Map<unknown, string[]>();
  const looks = spiedOn(purgePool(db), ({ text, values: [since, until] }) => {
    if (text.includes('OFFSET')) marks.set(until, [...(marks.get(until) ?? []), String(since)]);
  });
  await sweep(looks, { batchRowsMax: 100 });
  const all = [...marks.values()].flat();
  expect(all.length).toBeGreaterThanOrEqual(50);
  expect(new Set(all).size).toBe(all.length);
  for (const ofSlice of marks.values()) expect(ofSlice).toEqual(ofSlice.toSorted());
});

describe('5,000 rows of one instant, in batches of 1,000', () => {
  test('the rows drain, and no batch is larger', async () => {
    await insertMarkers(db, 5000);
    await insertMarkers(db, 10, { ageMinutes: KEPT_MINUTES - 1, prefix: 'live' });
    const report = await sweep(purgePool(db));
    expect(report).toMatchObject({ leftRows: 0, error: undefined });
    expect(report.batchRows).toEqual([1000, 1000, 1000, 1000, 1000]);
    expect(await countLeft(db)).toBe(10);
  });

  test('the rows drain when several loops meet at them', async () => {
    await insertMarkers(db, 5000);
    const report = await sweep(purgePool(db, 4), { concurrency: 4 });
    expect(report).toMatchObject({ rows: 5000, leftRows: 0, error: undefined });
  });
});

test('a row committed late, behind the cursor, is found by the next run', async () => {
  await insertMarkers(db, 100, { spreadSeconds: 100 });
  const late = await openSession(db.adminUrl);
  await late.query('BEGIN');
  await late.query(
    `INSERT INTO player_mutation_idempotency VALUES ('purged', 'late', now() - interval '3 hours')`,
  );
  const pool = purgePool(db);
  expect(await sweep(pool)).toMatchObject({ rows: 100, leftRows: 0 });
  await late.query('COMMIT');
  expect(await sweep(pool)).toMatchObject({ rows: 1, leftRows: 0 });
  expect(await markersLeft(db)).toEqual([]);
});

describe('sweeps that know nothing of each other (C97)', () => {
  const ROWS = 40_000;
  const LIVE = 500;

  beforeEach(async () => {
    await insertMarkers(db, ROWS, { spreadSeconds: 400 });
    await insertMarkers(db, LIVE, { ageMinutes: KEPT_MINUTES - 1, prefix: 'live' });
  });

  async function expectExactlyTheExpired(workers: readonly Promise<{ rows: number }>[]) {
    const reports = await Promise.all(workers);
    expect(reports.filter((report) => 'error' in report && report.error)).toEqual([]);
    expect(sum(reports.map(({ rows }) => rows))).toBe(ROWS);
    expect(await countLeft(db)).toBe(LIVE);
    expect((await markersLeft(db)).every((id) => id.startsWith('live'))).toBe(true);
    return reports;
  }

  test.for([{ loops: [1, 1] }, { loops: [1, 1, 1, 2] }])(
    'sweeps of $loops loops delete exactly the expired rows, none twice',
    async ({ loops }) => {
      await expectExactlyTheExpired(
        loops.map((concurrency) => sweep(purgePool(db, concurrency), { concurrency })),
      );
    },
  );

  test('sweeps that start at different moments delete exactly the expired rows, and none waits for another', async () => {
    const sweeps = [sweep(purgePool(db))];
    const later = async (leftRows: number) => {
      await eventually(async () => (await countLeft(db)) < leftRows, `fewer than ${leftRows}`);
      sweeps.push(sweep(purgePool(db)));
    };
    const watch = watchForWaits();
    await later(35_000);
    await later(20_000);
    await expectExactlyTheExpired(sweeps);
    expect(await watch.stop()).toEqual([]);
  });

  test('each sweep begins elsewhere', async () => {
    const firstLooks = new Set<unknown>();
    for (let run = 0; run < 6; run++) {
      // Stopped at its first look, so that all six find the same rows.
      const { rows } = await sweep(
        spiedOn(purgePool(db), ({ text, values: [since] }) => {
          if (!text.includes('OFFSET')) return;
          firstLooks.add(since);
          throw new Error('stopped');
        }),
      );
      expect(rows).toBe(0);
    }
    // All six begin at one of sixteen slices once in a million times.
    expect(firstLooks.size).toBeGreaterThan(1);
  });

  test('workers under different plans, next to an older release that locks row by row, meet no deadlock', async () => {
    const before = await countDeadlocks(db);
    const older = async () => {
      const pool = purgePool(db);
      let rows = 0;
      for (;;) {
        const { rowCount } = await pool.query(
          `DELETE FROM player_mutation_idempotency WHERE ctid = ANY (ARRAY(
             SELECT ctid FROM player_mutation_idempotency
              WHERE created_at < now() - interval '65 minutes'
              ORDER BY created_at DESC LIMIT 500 FOR UPDATE SKIP LOCKED))`,
        );
        rows += rowCount ?? 0;
        if ((rowCount ?? 0) < 500) return { rows };
      }
    };
    await expectExactlyTheExpired([
      sweep(purgePool(db, 1, '-c enable_seqscan=off -c enable_bitmapscan=off')),
      sweep(purgePool(db, 1, '-c enable_indexscan=off -c enable_indexonlyscan=off')),
      sweep(purgePool(db, 1, '-c enable_indexscan=off -c enable_bitmapscan=off')),
      older(),
    ]);
    expect(await countDeadlocks(db)).toBe(before);
  });
});

/** Sessions of the purge that were seen waiting for a lock, from now on. */
function watchForWaits() {
  const seen: unknown[] = [];
  let isOn = true;
  const watching = (async () => {
    while (isOn) {
      seen.push(
        ...(await db.sql(
          `SELECT pid, wait_event, query FROM pg_stat_activity
            WHERE datname = current_database() AND usename = 'backstop_purge'
              AND (wait_event_type = 'Lock' OR cardinality(pg_blocking_pids(pid)) > 0)`,
        )),
      );
    }
  })();
  return {
    stop: async () => {
      isOn = false;
      await watching;
      return seen;
    },
  };
}

describe('a purge that is stuck in the middle of a batch', () => {
  /** It sleeps at a row, as no lock of ours would let it: the one way to see a batch from the inside. */
  async function stuckSweep() {
    await db.sql(`CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF OLD.request_id = 'k1500' AND current_setting('application_name') = 'stuck' THEN
          PERFORM pg_sleep(60);
        END IF;
        RETURN OLD;
      END $$`);
    await db.sql(`CREATE TRIGGER doze BEFORE DELETE ON player_mutation_idempotency
                  FOR EACH ROW EXECUTE FUNCTION doze()`);
    onTestFinished(async () => {
      await db.sql('DROP FUNCTION doze CASCADE');
    });
    const sweeping = sweep(purgePool(db, 1, '-c application_name=stuck'));
    const pid = await eventually(async () => {
      const [row] = await db.sql<{ pid: number }>(
        `SELECT pid FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event = 'PgSleep'`,
      );
      return row?.pid;
    }, 'a batch asleep');
    return { sweeping, kill: () => db.sql('SELECT pg_terminate_backend($1)', [pid]) };
  }

  test('another sweep deletes all the rest without a wait, and that batch once its purge is killed', async () => {
    await insertMarkers(db, 10_000, { spreadSeconds: 10 });
    const stuck = await stuckSweep();
    const watch = watchForWaits();
    const sweeping = sweep(purgePool(db));
    // The second of k1500, which the other one holds.
    await eventually(async () => (await countLeft(db)) === 1000, 'all the rest gone');
    expect(await watch.stop()).toEqual([]);
    await stuck.kill();
    const [killed, other] = await Promise.all([stuck.sweeping, sweeping]);
    expect(killed.error).toMatchObject({ code: '57P01' });
    expect(other).toMatchObject({ leftRows: 0, error: undefined });
    expect(killed.rows + other.rows).toBe(10_000);
    expect(await countLeft(db)).toBe(0);
  });

  test('another sweep whose time ends meanwhile reports that batch as left', async () => {
    await insertMarkers(db, 10_000, { spreadSeconds: 10 });
    const stuck = await stuckSweep();
    const before = await countLeft(db);
    let isOver = false;
    const sweeping = sweep(purgePool(db), {
      remainingMs: () => (isOver ? 0 : Number.POSITIVE_INFINITY),
    });
    await eventually(async () => (await countLeft(db)) === 1000, 'all the rest gone');
    isOver = true;
    expect(await sweeping).toMatchObject({ rows: before - 1000, leftRows: 1000, error: undefined });
    await stuck.kill();
    await stuck.sweeping;
  });

  test('killing it undoes that batch, and nothing is lost', async () => {
    await insertMarkers(db, 3000, { spreadSeconds: 3 });
    const stuck = await stuckSweep();
    await stuck.kill();
    const killed = await stuck.sweeping;
    expect(killed.error).toMatchObject({ code: '57P01' });
    expect(killed.leftRows).toBe(3000 - killed.rows);
    expect(await countLeft(db)).toBe(3000 - killed.rows);
    expect(await markersLeft(db)).toContain('k1499');
    expect(await sweep(purgePool(db))).toMatchObject({ rows: 3000 - killed.rows, leftRows: 0 });
  });
});

describe('rows that somebody else has locked', () => {
  test('locked rows are skipped, and the rest goes', async () => {
    await insertMarkers(db, 3000, { spreadSeconds: 30 });
    const other = await openSession(db.adminUrl);
    await other.query('BEGIN');
    await other.query(
      `SELECT FROM player_mutation_idempotency WHERE request_id IN ('k7', 'k1500') FOR UPDATE`,
    );
    const pool = purgePool(db);
    const report = await sweep(pool);
    expect(report).toMatchObject({ rows: 2998, leftRows: 2, error: undefined });
    expect(report.oldestExpiredAgeSeconds).toBeGreaterThan(9 * 60);
    await other.query('ROLLBACK');
    expect(await sweep(pool)).toMatchObject({ rows: 2, leftRows: 0, oldestExpiredAgeSeconds: 0 });
  });

  test('locked rows cost one wait in a slice, and not one in each batch', async () => {
    await insertMarkers(db, 20_000, { spreadSeconds: 8 });
    const other = await openSession(db.adminUrl);
    await other.query('BEGIN');
    await other.query(
      `SELECT FROM player_mutation_idempotency WHERE right(request_id, 2) = '50' FOR UPDATE`,
    );
    let waits = 0;
    const pool = purgePool(db);
    const counted: Queryable = {
      query: (text, values) =>
        pool.query(text, values as unknown[]).catch((error) => {
          waits++;
          throw error;
        }) as never,
    };
    expect(await sweep(counted, { batchRowsMax: 200 })).toMatchObject({ leftRows: 200 });
    expect(waits).toBeLessThanOrEqual(9);
  });

  test('a statement that fails for whatever reason is followed by the next, behind its rollback', async () => {
    const pool = purgePool(db);
    const pid = async () => {
      const { rows } = await pool.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
      return rows[0]?.pid;
    };
    const first = await pid();
    await expect(pool.query('SELECT 1 / 0')).rejects.toMatchObject({ code: '22012' });
    // On another connection it could find the rows of the failed one still locked.
    expect(await pid()).toBe(first);
    await expect(pool.query('SELECT pg_terminate_backend(pg_backend_pid())')).rejects.toThrow();
    expect(await pid()).not.toBe(first);
  });

  test('rows that are locked by a purge count as left until it has committed', async () => {
    await insertMarkers(db, 10);
    const other = await openSession(db.purgeUrl);
    await other.query('BEGIN');
    await other.query('DELETE FROM player_mutation_idempotency');
    expect(await sweep(purgePool(db))).toMatchObject({ rows: 0, leftRows: 10 });
    await other.query('COMMIT');
    expect(await sweep(purgePool(db))).toMatchObject({ rows: 0, leftRows: 0 });
  });
});

describe('a sweep that is killed', () => {
  test('the counts of a sweep killed after the third batch and of the next run add up (C98)', async () => {
    await insertMarkers(db, 10_000, { spreadSeconds: 10 });
    let deletes = 0;
    const pool = purgePool(db);
    const report = await sweep(
      spiedOn(pool, async (statement) => {
        if (!isDelete(statement) || ++deletes !== 4) return;
        await db.sql(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND usename = 'backstop_purge'`,
        );
        await eventually(async () => pool.open() === 0, 'the connection gone');
        throw new Error('killed');
      }),
    );
    expect(report).toMatchObject({ rows: 3000, error: new Error('killed') });
    expect(report.batchRows).toEqual([1000, 1000, 1000]);
    expect(await sweep(pool)).toMatchObject({ rows: 7000, leftRows: 0, error: undefined });
    expect(await countLeft(db)).toBe(0);
  });

  test('the other loops go on when one is killed, also with its part', async () => {
    await insertMarkers(db, 10_000, { spreadSeconds: 100 });
    const fail = vi.fn(() => {
      throw new Error('lost');
    });
    let deletes = 0;
    const report = await sweep(
      spiedOn(purgePool(db, 3), (statement) => {
        if (isDelete(statement) && ++deletes === 1) fail();
      }),
      { concurrency: 3 },
    );
    expect(fail).toHaveBeenCalledOnce();
    expect(report).toMatchObject({ rows: 10_000, leftRows: 0, error: new Error('lost') });
  });
});

describe('a large purge, with the statistics of before (C95)', () => {
  test('every statement goes by the index after it', async () => {
    await insertMarkers(db, 100_000, { spreadSeconds: 1000 });
    await insertMarkers(db, 5000, {
      ageMinutes: KEPT_MINUTES - 1,
      spreadSeconds: 3600,
      prefix: 'live',
    });
    await db.sql('VACUUM ANALYZE player_mutation_idempotency');
    await sweep(purgePool(db));
    await insertMarkers(db, 100, { spreadSeconds: 100, prefix: 'more' });
    const statements: Statement[] = [];
    await sweep(spiedOn(purgePool(db), (statement) => void statements.push(statement)));
    const kinds = new Map(statements.map((statement) => [statement.text, statement]));
    // The horizon, a look, a delete, what is left, the arrival.
    expect(kinds.size).toBe(5);
    for (const { text, values } of kinds.values()) {
      const rows = await db.sql<{ 'QUERY PLAN': string }>(`EXPLAIN ${text}`, [...values]);
      const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
      expect(plan).toMatch(/Index (Only )?Scan.* using idx_pmi_created_at/);
      expect(plan).not.toContain('Seq Scan');
    }
  });
});

describe('the backlog that is reported', () => {
  test('a small backlog is exact, and the rows that expire within a minute are the arrival', async () => {
    await insertMarkers(db, 300, { spreadSeconds: 100 });
    await insertMarkers(db, 120, { ageMinutes: KEPT_MINUTES - 0.6, prefix: 'soon' });
    await insertMarkers(db, 120, { ageMinutes: KEPT_MINUTES - 2, prefix: 'later' });
    const report = await sweep(purgePool(db), { remainingMs: () => 0 });
    expect(report).toMatchObject({ rows: 0, leftRows: 300, arrivalPerSecond: 2 });
    expect(report.oldestExpiredAgeSeconds).toBeGreaterThanOrEqual(600);
    expect(report.oldestExpiredAgeSeconds).toBeLessThan(660);
  });

  test.for([0, 500])('a large backlog is about right, over %d seconds', async (spreadSeconds) => {
    await insertMarkers(db, 60_000, { spreadSeconds });
    await insertMarkers(db, 60_000, { ageMinutes: 1, prefix: 'live' });
    const { leftRows } = await sweep(purgePool(db), { remainingMs: () => 0 });
    expect(leftRows).toBeGreaterThan(50_000);
    expect(leftRows).toBeLessThan(70_000);
  });

  test('the arrival is right when more expires in a minute than is counted', async () => {
    await insertMarkers(db, 60_000, {
      ageMinutes: KEPT_MINUTES,
      spreadSeconds: 60,
      prefix: 'soon',
    });
    const { arrivalPerSecond } = await sweep(purgePool(db), { remainingMs: () => 0 });
    expect(arrivalPerSecond).toBeGreaterThan(900);
    expect(arrivalPerSecond).toBeLessThan(1100);
  });
});
