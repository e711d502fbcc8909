/** What a first request writes to the log, takes of the backend and uses up of transaction ids. */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { markerStore } from '../../shared/postgres/marker-store.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { recordStore } from '../../shared/postgres/record-store.ts';
import { type BenchPostgres, backendCpuSeconds, rounded } from './postgres.ts';
import type { BenchRun } from './run.ts';
import { createPlayers, fillMarkers, type Keys, keyFirst, walBytes } from './sizes-tables.ts';
import { openDatabase, spendOnce, spendUnprotected } from './spend.ts';

/** Who sends the requests, and where their new entries go in the primary key's index. */
interface Case {
  readonly name: string;
  readonly keys: Keys;
  /** `few`: a hundred, each with so many markers that they fill pages of their own. */
  readonly players: 'many' | 'few';
  /** PRIMARY KEY (request_id, user_id), which the product does not have. */
  readonly isKeyFirst?: boolean;
}

const CASES: readonly Case[] = [
  { name: 'v4', keys: 'v4', players: 'many' },
  { name: 'v7', keys: 'v7', players: 'many' },
  { name: 'v4_few', keys: 'v4', players: 'few' },
  { name: 'v7_few', keys: 'v7', players: 'few' },
  { name: 'v7_key_first', keys: 'v7', players: 'many', isKeyFirst: true },
];

const MANY_PLAYERS = 100_000;
const FEW_PLAYERS = 100;

export async function measureClaims(
  postgres: BenchPostgres,
  run: BenchRun,
): Promise<Record<string, number>> {
  const rows = run.isQuick ? 50_000 : 2_000_000;
  const count = run.isQuick ? 500 : 10_000;
  const admin = await postgres.connect();
  const all = await createPlayers(admin, MANY_PLAYERS);
  const url = new URL(postgres.url);
  url.username = 'backstop_api';
  const database = openDatabase(url.href);
  const figures: Record<string, number> = {};
  const measure = async (
    name: string,
    request: () => Promise<void>,
    backend = theOneOf(database),
  ) => {
    const cost = await costOf(admin, backend, count, request);
    Object.assign(figures, {
      [`wal_bytes_${name}`]: cost.walBytes,
      [`wal_bytes_${name}_whole`]: cost.walBytesAfterCheckpoint,
      [`cpu_us_${name}`]: cost.cpuMicroseconds,
      [`xids_${name}`]: cost.xids,
    });
    run.progress(`${name}: ${JSON.stringify(cost)}`);
  };
  const markers = markerStore({ database, retentionMs: 3_600_000 });
  const records = recordStore({ database, retentionMs: 172_800_000, leaseMs: 30_000 });
  const plain = await postgres.connect();
  await measure(
    'naive',
    () => spendUnprotected(plain, oneOf(all)),
    async () => plain,
  );
  for (const { name, keys, players, isKeyFirst = false } of CASES) {
    const those = players === 'few' ? all.slice(0, FEW_PLAYERS) : all;
    await keyFirst(admin, isKeyFirst);
    await fillMarkers(admin, { rows, players: those.length, keys });
    await measure(name, () => spendOnce(markers, oneOf(those), { key: newKey(keys) }));
  }
  await keyFirst(admin, false);
  await measure('record', () => spendOnce(records, oneOf(all), { body: '#'.repeat(300) }));
  await database.pool.end();
  return figures;
}

interface Cost {
  /** Without images of whole pages: long after a checkpoint, or where storage needs none. */
  readonly walBytes: number;
  /** With them, right after one. */
  readonly walBytesAfterCheckpoint: number;
  readonly cpuMicroseconds: number;
  readonly xids: number;
}

async function costOf(
  admin: pg.Client,
  backend: () => Promise<pg.Client>,
  count: number,
  request: () => Promise<void>,
): Promise<Cost> {
  await request();
  await wholePages(admin, true);
  const walBytesAfterCheckpoint = await walPerRequest(admin, count, request);
  await wholePages(admin, false);
  const client = await backend();
  const cpuBefore = backendCpuSeconds(client);
  const xidBefore = await nextXid(admin);
  const walBytesEach = await walPerRequest(admin, count, request);
  return {
    walBytes: walBytesEach,
    walBytesAfterCheckpoint,
    cpuMicroseconds: rounded(((backendCpuSeconds(client) - cpuBefore) / count) * 1e6, 0),
    xids: rounded(((await nextXid(admin)) - xidBefore) / count),
  };
}

/** A pool of one: its connection is the one that all requests have. */
function theOneOf({ pool }: Database): () => Promise<pg.Client> {
  return async () => {
    const client = await pool.connect();
    client.release();
    return client as unknown as pg.Client;
  };
}

async function walPerRequest(admin: pg.Client, count: number, request: () => Promise<void>) {
  const before = await walBytes(admin);
  for (let n = 0; n < count; n++) await request();
  return rounded(((await walBytes(admin)) - before) / count, 0);
}

/** Ends with a checkpoint, before which the checkpointer takes the change up. */
async function wholePages(admin: pg.Client, isOn: boolean): Promise<void> {
  await admin.query(`ALTER SYSTEM SET full_page_writes = ${isOn ? 'on' : 'off'}`);
  await admin.query('SELECT pg_reload_conf()');
  await admin.query('CHECKPOINT');
}

/** Looking does not use one up. */
async function nextXid(admin: pg.Client): Promise<number> {
  const { rows } = await admin.query<{ xid: string }>(
    'SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS xid',
  );
  return Number(rows[0]?.xid);
}

function oneOf(players: readonly string[]): string {
  return players[Math.floor(Math.random() * players.length)] as string;
}

function newKey(keys: Keys): string {
  const random = randomUUID();
  if (keys === 'v4') return random;
  const time = Date.now().toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(15)}`;
}
