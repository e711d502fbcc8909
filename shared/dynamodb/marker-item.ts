/**
 * The marker: the item whose being there says that a key was used up, and that holds
 * what was answered. It is put in the transaction that makes the effect.
 */
import { type Kept, type Mutation, TOMBSTONE } from '../core/contract.ts';
import { areComparable } from '../core/fingerprint.ts';
import { decodeKept, encodeKept } from '../core/kept.ts';
import type { NotCommitted } from '../core/outcome.ts';
import type { Item } from './table.ts';

/** The table's time-to-live attribute: whole seconds since the epoch. */
export const TTL_ATTRIBUTE = 'expires_at';

/** 400 KB, attribute names included. One byte more and DynamoDB refuses the whole transaction. */
const ITEM_BYTES_MAX = 409_600;

export interface MarkerFacts {
  /** Names the one built request that puts this item, and so tells ours from another's. */
  readonly requestToken: string;
  readonly kept: Kept;
  /** The published expiry, on the epoch. */
  readonly retainedUntilSeconds: number;
  readonly ttlSlackSeconds: number;
}

/** With the response, or with a tombstone where the item would be too large for DynamoDB. */
export function markerItem(mutation: Mutation, facts: MarkerFacts): Item {
  const { requestToken, kept, retainedUntilSeconds, ttlSlackSeconds } = facts;
  const item = {
    pk: { S: markerKey(mutation) },
    attempt: { S: requestToken },
    fingerprint: { S: mutation.fingerprint },
    response: { S: encodeKept(kept) },
    retained_until: { N: String(retainedUntilSeconds) },
    [TTL_ATTRIBUTE]: { N: String(retainedUntilSeconds + ttlSlackSeconds) },
  };
  if (bytesOf(item) <= ITEM_BYTES_MAX) return item;
  return { ...item, response: { S: encodeKept(TOMBSTONE) } };
}

/**
 * The length stands before what it measures, so that user `t1` with key `a:b` is not
 * `t1:a` with `b`. Percent-encoding could make it longer than the 2,048 bytes that a
 * partition key may have.
 */
export function markerKey({ principal, key }: Pick<Mutation, 'principal' | 'key'>): string {
  return `idem:${principal.length}:${principal}:${key}`;
}

/**
 * What a marker answers to a request with its key. No clock decides it: an item that is
 * there answers, also past its expiry, when the deletion by its time-to-live is still to
 * come (days late, at times). Taken for absent, it would be a second run.
 */
export function outcomeOfMarker(item: Item, { fingerprint }: Mutation): NotCommitted<Kept> {
  const own = item['fingerprint']?.S ?? '';
  const expiresAtMs = Number(item['retained_until']?.N) * 1000;
  if (!areComparable(own, fingerprint)) return { kind: 'rejected', code: 'ALREADY_EXISTS' };
  if (own !== fingerprint) return { kind: 'rejected', code: 'KEY_REUSED' };
  if (!Number.isFinite(expiresAtMs)) return { kind: 'rejected', code: 'ALREADY_EXISTS' };
  return { kind: 'replayed', result: decodeKept(item['response']?.S ?? ''), expiresAtMs };
}

/** As DynamoDB counts: UTF-8, names included; of a number never more than 21. */
function bytesOf(item: Item): number {
  return Object.entries(item).reduce(
    (bytes, [name, { S }]) =>
      bytes + Buffer.byteLength(name) + (S === undefined ? 21 : Buffer.byteLength(S)),
    0,
  );
}
