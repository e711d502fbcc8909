import { randomUUID } from 'node:crypto';
import type { CancellationReason } from '@aws-sdk/client-dynamodb';
import { nowMs } from '../core/clock.ts';
import {
  ANSWER_GRACE_MS,
  COMMIT_LOOKUP_GRACE_MS,
  type Completion,
  type Kept,
  type Mutation,
  type OpenTransaction,
  type Store,
  type Unprotected,
} from '../core/contract.ts';
import { type Committed, DeadlineError, type NotCommitted, withoutRetry } from '../core/outcome.ts';
import { outcomeOf, outcomeOfReasons } from './classify-error.ts';
import { markerItem, markerKey, outcomeOfMarker } from './marker-item.ts';
import { type Item, readItem, type Table } from './table.ts';
import { transact } from './transact.ts';
import type { DynamoTx, Write } from './work.ts';

export interface DynamoStoreOptions {
  readonly table: Table;
  /** How long a response is replayed at the least. */
  readonly retentionMs: number;
  /**
   * How much later than that the item may be deleted: twice the skew of the clocks, and the
   * oldest request with all that the SDK sends again.
   */
  readonly ttlSlackMs: number;
}

/**
 * The store for state in DynamoDB. The marker, the response and what the work wants
 * written are one `TransactWriteItems`: there is no claim before it, so no lease to lose
 * and nothing to clean up. Of two that run at once, one commits; the other finds its
 * marker and repeats its answer.
 */
export function dynamoStore(options: DynamoStoreOptions): Store<DynamoTx> {
  return {
    begin: async (request) => {
      if (request.key === undefined) return openTransaction(options, request);
      // Before the work and not only by the marker's condition: a repeat costs one read and
      // runs nothing, and no stale If-Match comes before its answer.
      const found = await lookUpMarker(
        options.table,
        request,
        request.deadlineMs + ANSWER_GRACE_MS,
      );
      return found === 'absent' ? openTransaction(options, request) : found;
    },
  };
}

function openTransaction(
  options: DynamoStoreOptions,
  request: Mutation | Unprotected,
): OpenTransaction<DynamoTx> {
  const { table } = options;
  let writes: readonly Write[] = [];
  let readError: unknown;
  return {
    tx: {
      name: table.name,
      get: async (pk) => {
        try {
          return await table.get(pk);
        } catch (error) {
          readError ??= error;
          throw error;
        }
      },
      plan: (planned) => {
        writes = planned;
      },
    },
    claimed: Promise.resolve(),
    commit: (completion) => {
      const kept = completion.keepWrites ? writes : [];
      return request.key === undefined
        ? commitUnprotected(table, request, completion, kept)
        : commit(options, request, completion, kept);
    },
    rollback: async (error) => {
      // The work may have wrapped the error of its read: the first one decides.
      if (readError !== undefined) return { kind: 'failed', error: readError };
      if (error instanceof DeadlineError)
        return { kind: 'rejected', code: 'UNAVAILABLE', cause: error };
      if (error === undefined || request.key === undefined) return { kind: 'failed', error };
      // What the work objects to may be what a duplicate has just done: the marker first.
      const found = await lookUpMarker(table, request, request.deadlineMs + COMMIT_LOOKUP_GRACE_MS);
      return found === 'absent' ? { kind: 'failed', error } : found;
    },
    cancel: async () => {}, // Nothing was sent that could take effect.
  };
}

async function commit(
  { table, retentionMs, ttlSlackMs }: DynamoStoreOptions,
  request: Mutation,
  completion: Completion,
  writes: readonly Write[],
): Promise<Committed<Kept> | NotCommitted<Kept>> {
  const requestToken = randomUUID();
  // DynamoDB has no clock that a write could ask, so this is the process' own. It decides
  // nothing: whether a request may run hangs on the item being there, never on the time.
  // A clock that is off moves only the published expiry, and the deletion with it.
  const retainedUntilSeconds = Math.ceil((nowMs() + retentionMs) / 1000);
  const ttlSlackSeconds = Math.ceil(ttlSlackMs / 1000);
  const { kept } = completion;
  const facts = { requestToken, kept, retainedUntilSeconds, ttlSlackSeconds };
  const marker = markerItem(request, facts);
  const committed = {
    kind: 'committed',
    result: kept,
    expiresAtMs: retainedUntilSeconds * 1000,
  } as const;
  const items = [putOnce(table, marker), ...writes];
  const fate = await transact(
    table.client,
    requestToken,
    items,
    request.deadlineMs + ANSWER_GRACE_MS,
  );
  switch (fate.kind) {
    case 'committed':
      return committed;
    case 'cancelled':
      return whyCancelled(request, fate.reasons, fate.cause);
    case 'refused':
      return outcomeOf(fate.cause);
    case 'unknown': {
      const untilAtMs = request.deadlineMs + COMMIT_LOOKUP_GRACE_MS;
      const found = await readItem(table, markerKey(request), untilAtMs).catch(() => undefined);
      if (found?.['attempt']?.S === requestToken) return committed;
      if (found !== undefined) return outcomeOfMarker(found, request);
      // Unreadable, or not there yet: what was sent may still arrive, until its signature is too old (5 min).
      // That is safe. The client is told to send this key again. Whichever of the two comes
      // first puts the marker, and the marker's condition then refuses the other; it goes on
      // refusing for the whole retention, hours after the last send of ours can arrive.
      return { kind: 'unknown', cause: fate.cause };
    }
  }
}

function putOnce({ name }: Table, item: Item): Write {
  return {
    Put: {
      TableName: name,
      Item: item,
      ConditionExpression: 'attribute_not_exists(pk)',
      ReturnValuesOnConditionCheckFailure: 'ALL_OLD',
    },
  };
}

/** By position: the marker's reason comes first, and is judged first. */
function whyCancelled(
  request: Mutation,
  [marker, ...others]: readonly CancellationReason[],
  cause: unknown,
): NotCommitted<Kept> {
  const isThere = marker?.Code === 'ConditionalCheckFailed';
  if (isThere && marker.Item) return outcomeOfMarker(marker.Item, request);
  // A duplicate is committing at this very moment, or its marker did not come along: the
  // next try will look for it first.
  if (isThere || marker?.Code === 'TransactionConflict') {
    return { kind: 'retryable', reason: 'in-flight', cause };
  }
  return outcomeOfReasons(marker ? [marker, ...others] : [], cause);
}

/** Without a key there is no marker, and so no way to learn what became of a lost answer. */
async function commitUnprotected(
  table: Table,
  request: Unprotected,
  { kept }: Completion,
  writes: readonly Write[],
): Promise<Committed<Kept> | NotCommitted<Kept>> {
  const committed = { kind: 'committed', result: kept, expiresAtMs: undefined } as const;
  if (writes.length === 0) return committed;
  const fate = await transact(
    table.client,
    randomUUID(),
    writes,
    request.deadlineMs + ANSWER_GRACE_MS,
  );
  switch (fate.kind) {
    case 'committed':
      return committed;
    case 'unknown':
      return { kind: 'unknown', cause: fate.cause };
    case 'refused':
      return outcomeOf(fate.cause);
    case 'cancelled':
      return withoutRetry(outcomeOfReasons(fate.reasons, fate.cause), 'DynamoDB');
  }
}

/** What the marker answers to this request, if it is there. */
async function lookUpMarker(
  table: Table,
  request: Mutation,
  untilAtMs: number,
): Promise<NotCommitted<Kept> | 'absent'> {
  try {
    const found = await readItem(table, markerKey(request), untilAtMs);
    return found ? outcomeOfMarker(found, request) : 'absent';
  } catch (cause) {
    return outcomeOf(cause);
  }
}
