import { randomUUID } from 'node:crypto';
import type { CancellationReason } from '@aws-sdk/client-dynamodb';
import { nowMs } from '../core/clock.ts';
import {
  type Attempt,
  type Completion,
  DeadlineError,
  type Mutation,
  RESOLVE_MS,
  type Setback,
  type Settlement,
  SILENCE_MS,
  type Store,
  type Unprotected,
} from '../core/contract.ts';
import { setbackOf, setbackOfReasons, unavailable } from './classify-error.ts';
import { answerOfMarker, markerItem, markerKey } from './marker-item.ts';
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
      if (request.key === undefined) return openAttempt(options, request);
      // Before the work and not only by the marker's condition: a repeat costs one read and
      // runs nothing, and no stale If-Match comes before its answer.
      const found = await seek(options.table, request, request.deadlineMs + SILENCE_MS);
      return found === 'absent' ? openAttempt(options, request) : found;
    },
  };
}

function openAttempt(
  options: DynamoStoreOptions,
  request: Mutation | Unprotected,
): Attempt<DynamoTx> {
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
      propose: (proposed) => {
        writes = proposed;
      },
    },
    claimed: Promise.resolve(),
    commit: (completion) => {
      const kept = completion.keepWrites ? writes : [];
      return request.key === undefined
        ? commitUnprotected(table, request, completion, kept)
        : commit(options, request, completion, kept);
    },
    abandon: async (error) => {
      // The work may have wrapped the error of its read: the first one decides.
      if (readError !== undefined) return { kind: 'threw', error: readError };
      if (error instanceof DeadlineError) return { kind: 'late' };
      if (error === undefined || request.key === undefined) return { kind: 'threw', error };
      // What the work objects to may be what a duplicate has just done: the marker first.
      const found = await seek(table, request, request.deadlineMs + RESOLVE_MS);
      return found === 'absent' ? { kind: 'threw', error } : found;
    },
    withdraw: async () => {}, // Nothing was sent that could take effect.
  };
}

async function commit(
  { table, retentionMs, ttlSlackMs }: DynamoStoreOptions,
  request: Mutation,
  completion: Completion,
  writes: readonly Write[],
): Promise<Settlement> {
  const attempt = randomUUID();
  // DynamoDB has no clock that a write could ask, so this is the process' own. It decides
  // nothing: whether a request may run hangs on the item being there, never on the time.
  // A clock that is off moves only the published expiry, and the deletion with it.
  const retainedUntilSeconds = Math.ceil((nowMs() + retentionMs) / 1000);
  const ttlSlackSeconds = Math.ceil(ttlSlackMs / 1000);
  const { response, stored } = completion;
  const marker = markerItem(request, { attempt, stored, retainedUntilSeconds, ttlSlackSeconds });
  const committed: Settlement = {
    kind: 'committed',
    response,
    stored,
    expiresAtMs: retainedUntilSeconds * 1000,
  };
  const items = [putOnce(table, marker), ...writes];
  const fate = await transact(table.client, attempt, items, request.deadlineMs + SILENCE_MS);
  switch (fate.kind) {
    case 'committed':
      return committed;
    case 'cancelled':
      return whyCancelled(request, fate.reasons, fate.cause);
    case 'refused':
      return setbackOf(fate.cause);
    case 'unknown': {
      const found = await lookFor(table, request, request.deadlineMs + RESOLVE_MS);
      if (found === 'unreadable') return { kind: 'unknown-outcome', cause: fate.cause };
      if (found?.['attempt']?.S === attempt) return committed;
      if (found !== undefined) return answerOfMarker(found, request);
      // Not there yet: what was sent may still arrive, until its signature is too old (5 min).
      // That is safe. The client is told to send this key again. Whichever of the two comes
      // first puts the marker, and the marker's condition then refuses the other; it goes on
      // refusing for the whole retention, hours after the last send of ours can arrive.
      return { kind: 'unknown-outcome', cause: fate.cause };
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
): Setback {
  const isThere = marker?.Code === 'ConditionalCheckFailed';
  if (isThere && marker.Item) return answerOfMarker(marker.Item, request);
  // A duplicate is committing at this very moment, or its marker did not come along: the
  // next try will look for it first.
  if (isThere || marker?.Code === 'TransactionConflict') {
    return { kind: 'retry', because: 'in-flight', cause };
  }
  return setbackOfReasons(marker ? [marker, ...others] : [], cause);
}

/** Without a key there is no marker, and so no way to learn what became of a lost answer. */
async function commitUnprotected(
  table: Table,
  request: Unprotected,
  { response, stored }: Completion,
  writes: readonly Write[],
): Promise<Settlement> {
  const committed: Settlement = { kind: 'committed', response, stored, expiresAtMs: undefined };
  if (writes.length === 0) return committed;
  const fate = await transact(table.client, randomUUID(), writes, request.deadlineMs + SILENCE_MS);
  switch (fate.kind) {
    case 'committed':
      return committed;
    case 'unknown':
      return { kind: 'unknown-outcome', cause: fate.cause };
    case 'refused':
      return setbackOf(fate.cause);
    case 'cancelled':
      return final(setbackOfReasons(fate.reasons, fate.cause));
  }
}

/** Without a key nothing is tried again once it was sent, however sure its failure is. */
function final(setback: Setback): Setback {
  if (setback.kind !== 'retry') return setback;
  const { because, cause } = setback;
  return because === 'conflict' ? { kind: 'contention', cause } : unavailable(cause);
}

/** What the marker answers to this request, if it is there. */
async function seek(table: Table, request: Mutation, byMs: number): Promise<Setback | 'absent'> {
  try {
    const found = await readItem(table, markerKey(request), byMs);
    return found ? answerOfMarker(found, request) : 'absent';
  } catch (cause) {
    return setbackOf(cause);
  }
}

async function lookFor(
  table: Table,
  request: Mutation,
  byMs: number,
): Promise<Item | undefined | 'unreadable'> {
  try {
    return await readItem(table, markerKey(request), byMs);
  } catch {
    return 'unreadable';
  }
}
