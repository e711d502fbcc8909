/** One player spends one coin: unprotected, and as a first request under a store. */
import type pg from 'pg';
import { NO_CACHE, type Store } from '../../shared/core/contract.ts';
import { runOnce } from '../../shared/core/once.ts';
import { httpCodec } from '../../shared/http/codec.ts';
import { createDatabase, type Database } from '../../shared/postgres/pool.ts';
import type { Tx } from '../../shared/postgres/transaction.ts';

const SPEND =
  'UPDATE players SET coins = coins - 1, data_version = data_version + 1 WHERE user_id = $1 RETURNING coins';

const CODEC = httpCodec({ storedBodyBytesMax: 100_000 });

/** One connection, as an execution environment of Lambda has it. */
export function openDatabase(connectionString: string): Database {
  return createDatabase({
    connectionString,
    max: 1,
    pipeline: true,
    connectTimeoutMs: 3000,
    onIdleError: () => {},
  });
}

export async function spendUnprotected(client: pg.ClientBase, player: string): Promise<void> {
  await client.query('BEGIN');
  await client.query(SPEND, [player]);
  await client.query('COMMIT');
}

export async function spendOnce<Handle extends Tx>(
  store: Store<Handle>,
  player: string,
  { key = crypto.randomUUID() as string, body = '{}' } = {},
): Promise<void> {
  const mutation = {
    principal: player,
    key,
    endpoint: 'POST /bench',
    fingerprint: '1:bench',
    token: crypto.randomUUID(),
    deadlineMs: Date.now() + 20_000,
  };
  const { outcome } = await runOnce(
    mutation,
    async (tx: Handle) => {
      await tx.query(SPEND, [player]);
      return { statusCode: 200, headers: { 'content-type': 'application/json' }, body };
    },
    { store, cache: NO_CACHE, codec: CODEC },
  );
  if (outcome.kind !== 'committed') throw new Error(`the bench's request ended as ${outcome.kind}`);
}
