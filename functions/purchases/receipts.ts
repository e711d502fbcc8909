import type { QueryResultRow } from 'pg';
import { acceptsVersion, type IfMatch } from '../../shared/index.ts';
import { compareAndSwap, type Queryable, STALE, type Tx } from '../../shared/postgres/index.ts';

export interface Receipt {
  readonly id: string;
  readonly sku: string;
  readonly quantity: number;
  /** What it cost altogether. */
  readonly coins: number;
  /** RFC 3339. */
  readonly purchasedAt: string;
}

interface ReceiptRow extends QueryResultRow {
  readonly id: string;
  readonly sku: string;
  readonly quantity: number;
  readonly coins: string;
  readonly purchased_at: Date;
}

const COLUMNS = 'id, sku, quantity, coins, purchased_at';

/** As Postgres writes a uuid. It refuses what is none with an error, which would be a failure of ours. */
const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** The receipt, if it is this player's: another's is as good as none. */
export async function findReceipt(
  db: Queryable,
  userId: string,
  id: string,
): Promise<Receipt | undefined> {
  if (!ID.test(id)) return undefined;
  const { rows } = await db.query<ReceiptRow>(
    `SELECT ${COLUMNS} FROM purchases WHERE id = $1 AND user_id = $2`,
    [id, userId],
  );
  return rows[0] && toReceipt(rows[0]);
}

export type Purchased =
  | { readonly kind: 'purchased'; readonly receipt: Receipt }
  | { readonly kind: 'insufficient'; readonly coins: number }
  | { readonly kind: 'no-product' | 'no-player' | 'stale' };

/**
 * Reads price and player, computes, charges by compare-and-swap, and writes the receipt.
 *
 * @param ifMatch about the player, whose coins a purchase changes.
 */
export function purchase(
  tx: Tx,
  userId: string,
  { sku, quantity }: { readonly sku: string; readonly quantity: number },
  ifMatch: IfMatch | undefined,
): Promise<Purchased> {
  return compareAndSwap<Purchased>(tx, async (isLocking) => {
    const [products, players] = await Promise.all([
      tx.query<{ coins: string }>('SELECT coins FROM products WHERE sku = $1', [sku]),
      tx.query<{ coins: string; data_version: string }>(
        `SELECT coins, data_version FROM players WHERE user_id = $1
          ${isLocking ? 'FOR NO KEY UPDATE' : ''}`,
        [userId],
      ),
    ]);
    const [product] = products.rows;
    const [player] = players.rows;
    if (!product) return { kind: 'no-product' };
    if (!player) return { kind: 'no-player' };
    if (!acceptsVersion(ifMatch, player.data_version)) return { kind: 'stale' };
    const coins = Number(product.coins) * quantity;
    if (Number(player.coins) < coins) return { kind: 'insufficient', coins };

    const [charged, written] = await Promise.all([
      tx.query(
        `UPDATE players SET coins = coins - $2, data_version = data_version + 1
          WHERE user_id = $1 AND data_version = $3`,
        [userId, coins, player.data_version],
      ),
      tx.query<ReceiptRow>(
        `INSERT INTO purchases (user_id, sku, quantity, coins) VALUES ($1, $2, $3, $4)
         RETURNING ${COLUMNS}`,
        [userId, sku, quantity, coins],
      ),
    ]);
    if (charged.rowCount === 0) return STALE;
    return { kind: 'purchased', receipt: toReceipt(written.rows[0] as ReceiptRow) };
  });
}

function toReceipt(row: ReceiptRow): Receipt {
  return {
    id: row.id,
    sku: row.sku,
    quantity: row.quantity,
    coins: Number(row.coins),
    purchasedAt: row.purchased_at.toISOString(),
  };
}
