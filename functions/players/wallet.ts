import type { QueryResultRow } from 'pg';
import { acceptsVersion, type IfMatch } from '../../shared/index.ts';
import { compareAndSwap, type Queryable, STALE, type Tx } from '../../shared/postgres/index.ts';

export interface Player {
  readonly userId: string;
  /** 0 to 2^53 - 1. */
  readonly coins: number;
  /** A bigint, as decimal text: it never becomes a float. */
  readonly dataVersion: string;
}

interface PlayerRow extends QueryResultRow {
  readonly user_id: string;
  readonly coins: string;
  readonly data_version: string;
}

const COLUMNS = 'user_id, coins, data_version';

/** The most that one player can hold: the largest integer that JSON carries without loss. */
export const COINS_MAX = Number.MAX_SAFE_INTEGER;

export async function findPlayer(db: Queryable, userId: string): Promise<Player | undefined> {
  const { rows } = await db.query<PlayerRow>(`SELECT ${COLUMNS} FROM players WHERE user_id = $1`, [
    userId,
  ]);
  return rows[0] && toPlayer(rows[0]);
}

export type Spent =
  | { readonly kind: 'spent'; readonly player: Player }
  | { readonly kind: 'insufficient' | 'stale' | 'missing' };

/**
 * One relative UPDATE: right under any concurrency, with nothing read before. Only
 * when it matches no row does a second query find out why.
 */
export async function spend(
  tx: Tx,
  userId: string,
  amount: number,
  ifMatch: IfMatch | undefined,
): Promise<Spent> {
  const versions = ifMatch === undefined || ifMatch === 'any' ? null : ifMatch;
  const { rows } = await tx.query<PlayerRow>(
    `UPDATE players SET coins = coins - $2, data_version = data_version + 1
      WHERE user_id = $1 AND coins >= $2 AND ($3::text[] IS NULL OR data_version::text = ANY ($3))
      RETURNING ${COLUMNS}`,
    [userId, amount, versions],
  );
  if (rows[0]) return { kind: 'spent', player: toPlayer(rows[0]) };
  const player = await findPlayer(tx, userId);
  if (!player) return { kind: 'missing' };
  return { kind: versions && !versions.includes(player.dataVersion) ? 'stale' : 'insufficient' };
}

export type Transferred =
  | { readonly kind: 'transferred'; readonly from: Player }
  | {
      readonly kind:
        | 'insufficient'
        | 'stale'
        | 'sender-missing'
        | 'receiver-missing'
        | 'receiver-full';
    };

export interface Transfer {
  readonly from: string;
  readonly to: string;
  readonly amount: number;
  /** About the sender: the receiver's version is nobody else's business. */
  readonly ifMatch: IfMatch | undefined;
}

/** Reads both players, computes, and swaps both by version: what is written is what was judged. */
export function transfer(tx: Tx, { from, to, amount, ifMatch }: Transfer): Promise<Transferred> {
  return compareAndSwap<Transferred>(tx, async (isLocking) => {
    const { rows } = await tx.query<PlayerRow>(
      `SELECT ${COLUMNS} FROM players WHERE user_id = ANY ($1)
        ORDER BY user_id COLLATE "C" ${isLocking ? 'FOR NO KEY UPDATE' : ''}`,
      [[from, to]],
    );
    const sender = rows.find((row) => row.user_id === from);
    const receiver = rows.find((row) => row.user_id === to);
    if (!sender) return { kind: 'sender-missing' };
    if (!acceptsVersion(ifMatch, sender.data_version)) return { kind: 'stale' };
    if (!receiver) return { kind: 'receiver-missing' };
    if (Number(sender.coins) < amount) return { kind: 'insufficient' };
    if (Number(receiver.coins) > COINS_MAX - amount) return { kind: 'receiver-full' };

    const swaps = [
      { row: sender, coins: Number(sender.coins) - amount },
      { row: receiver, coins: Number(receiver.coins) + amount },
    ];
    const swapped = await swapInOrder(tx, swaps);
    const after = swapped.find((row) => row?.user_id === from);
    return swapped.includes(undefined) || !after
      ? STALE
      : { kind: 'transferred', from: toPlayer(after) };
  });
}

/**
 * Everybody locks in the order of the ids' bytes (COLLATE "C" above), so that two
 * transfers cannot lock each other out.
 */
function swapInOrder(tx: Tx, swaps: { row: PlayerRow; coins: number }[]) {
  const ordered = swaps.toSorted((a, b) =>
    Buffer.compare(Buffer.from(a.row.user_id), Buffer.from(b.row.user_id)),
  );
  return Promise.all(
    ordered.map(async ({ row, coins }) => {
      const { rows } = await tx.query<PlayerRow>(
        `UPDATE players SET coins = $2, data_version = data_version + 1
          WHERE user_id = $1 AND data_version = $3 RETURNING ${COLUMNS}`,
        [row.user_id, coins, row.data_version],
      );
      return rows[0];
    }),
  );
}

function toPlayer(row: PlayerRow): Player {
  return { userId: row.user_id, coins: Number(row.coins), dataVersion: row.data_version };
}
