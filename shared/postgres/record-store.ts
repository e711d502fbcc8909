import { setTimeout as sleep } from 'node:timers/promises';
import type { PoolClient } from 'pg';
import { nowMs } from '../core/clock.ts';
import {
  type Attempt,
  LeaseLostError,
  type Mutation,
  RESOLVE_MS,
  type Setback,
  SILENCE_MS,
  type Store,
} from '../core/contract.ts';
import { decodeStored } from '../http/stored-format.ts';
import { openAttempt } from './attempt.ts';
import { setbackAtClaim, setbackAtConnect } from './classify-error.ts';
import { acquire, type Database } from './pool.ts';
import { promiseRetention } from './promise.ts';
import {
  claimRecord,
  markOfRecord,
  PUBLISH_HOME,
  type PublishHome,
  publishStatement,
  RECORD_NEEDS,
  RELEASE,
  RENEW,
  type RecordClaim,
  releaseValues,
} from './records.ts';
import { answeredAtOnce } from './silence.ts';
import { meaningOf } from './sqlstate.ts';
import { enterTransaction, handled, type Tx } from './transaction.ts';

export interface RecordStoreOptions {
  readonly database: Database;
  /** How long a response is replayed at the least, from its completion on. */
  readonly retentionMs: number;
  /**
   * How long a claim is left alone before it counts as abandoned. Longer than the
   * longest run, unless the work renews it; independent of the Lambda's time-out.
   */
  readonly leaseMs: number;
}

/** The work's hand in the transaction, and on its lease. */
export interface RecordTx extends Tx {
  /**
   * Starts the lease anew, for work that takes longer than it. On a connection of
   * its own, so that others see it at once.
   *
   * @throws LeaseLostError when the claim was taken over; let it through.
   */
  renewLease(): Promise<void>;
}

/**
 * The store for responses that must survive Redis. A claim is a row of its own, with
 * a lease, committed before the work begins; the response is published into it by
 * the last statement of the mutation's transaction, only if the claim is still ours.
 */
export function recordStore(options: RecordStoreOptions): Store<RecordTx> {
  const { database, retentionMs } = options;
  for (const part of [RECORD_NEEDS, PUBLISH_HOME]) database.addToGreeting(part);
  promiseRetention(database, 'idempotency_records', retentionMs);
  return {
    warm: database.warm,
    begin: async (request) => {
      let client: PoolClient;
      try {
        client = await acquire(database.pool, request.deadlineMs);
      } catch (cause) {
        return setbackAtConnect(cause);
      }
      return request.key === undefined
        ? openUnclaimed(options, request, client)
        : claimAndOpen(options, request, client);
    },
    release: async (mutation) => {
      // Work that was cut off ended when SILENCE_MS did: the release has its own time after it.
      const byMs = mutation.deadlineMs + RESOLVE_MS;
      try {
        const client = await acquire(database.pool, byMs);
        await tidily(client, () =>
          client.query({ text: RELEASE, values: releaseValues(mutation), ...until(byMs) }),
        );
      } catch {
        // The lease passes by itself.
      }
    },
  };
}

async function claimAndOpen(
  options: RecordStoreOptions,
  request: Mutation,
  client: PoolClient,
): Promise<Attempt<RecordTx> | Setback> {
  const { database, leaseMs, retentionMs } = options;
  const deadlineServerMs = database.toServerMs(request.deadlineMs);
  let claim: RecordClaim;
  let home: PublishHome;
  try {
    home = homeOf(database);
    const answerByMs = until(request.deadlineMs + SILENCE_MS).query_timeout;
    const { pipeline } = database;
    claim = await claimRecord(client, request, { leaseMs, deadlineServerMs, answerByMs, pipeline });
  } catch (error) {
    client.release(client.getTransactionStatus() !== 'I');
    return setbackAtClaim(error);
  }
  if (claim.outcome !== 'claimed') {
    client.release();
    return refusalOf(claim, retentionMs);
  }
  const attempt = openAttempt(database, request, client, {
    step0: (send) => enterTransaction(send, deadlineServerMs),
    beforeCommit: ({ stored }) => publishStatement(home, claim.id, request.token, stored),
    mark: () => markOfRecord(claim.id, request.token),
    retentionMs,
  });
  return withLease(attempt, () => renew(options, claim.id, request));
}

/** Known before the claim: what fails beside COMMIT without reaching the server does not stop it. */
function homeOf(database: Database): PublishHome {
  const home = database.greetingAnswer(PUBLISH_HOME.name) as PublishHome | null | undefined;
  if (!home)
    throw new Error('The greeting of this connection did not ask where publish_record is.');
  return home;
}

function refusalOf(claim: RecordClaim, retentionMs: number): Setback {
  switch (claim.outcome) {
    case 'mismatch':
      return { kind: 'mismatch' };
    case 'completed': {
      const response = claim.response && decodeStored(claim.response.toString('utf8'));
      const expiresAtMs = (claim.completedAtMs ?? 0) + retentionMs;
      return response ? { kind: 'completed', response, expiresAtMs } : { kind: 'already-exists' };
    }
    case 'unreadable':
      return { kind: 'already-exists' };
    default: {
      // A missing lease means locked: nobody knows for how long.
      const left = claim.leaseLeftMs;
      return left === null
        ? { kind: 'in-flight' }
        : { kind: 'in-flight', retryAfterSeconds: Math.ceil(left / 1000) };
    }
  }
}

function openUnclaimed(
  { database, retentionMs }: RecordStoreOptions,
  request: Parameters<Store<Tx>['begin']>[0],
  client: PoolClient,
): Attempt<RecordTx> {
  const deadlineServerMs = database.toServerMs(request.deadlineMs);
  const attempt = openAttempt(database, request, client, {
    step0: (send) => enterTransaction(send, deadlineServerMs),
    mark: undefined,
    retentionMs,
  });
  return withLease(attempt, async () => {});
}

function withLease(attempt: Attempt<Tx>, renewLease: () => Promise<void>): Attempt<RecordTx> {
  return { ...attempt, tx: { ...attempt.tx, renewLease: () => handled(renewLease()) } };
}

/** Renewing twice is renewing once, so a connection that goes silent or is lost costs a new one. */
async function renew(
  { database, leaseMs }: RecordStoreOptions,
  id: string,
  { token, deadlineMs }: Mutation,
): Promise<void> {
  for (;;) {
    try {
      return await renewOnce(database, [id, token, leaseMs]);
    } catch (error) {
      if (meaningOf(error) !== 'connection' || nowMs() >= deadlineMs) throw error;
      await sleep(RENEW_AGAIN_MS);
    }
  }
}

const RENEW_AGAIN_MS = 50;

async function renewOnce(database: Database, values: unknown[]): Promise<void> {
  const client = await database.connectAside();
  try {
    const { rowCount } = await answeredAtOnce(client, client.query(RENEW, values));
    if (rowCount === 0)
      throw new LeaseLostError('The lease has passed and another request took over.');
  } finally {
    void client.end(); // Destroyed where it is silent: nobody waits for its end.
  }
}

/** Gives the client back, or destroys it when it is not idle. */
async function tidily(client: PoolClient, use: () => Promise<unknown>): Promise<void> {
  let isDone = false;
  try {
    await use();
    isDone = true;
  } finally {
    client.release(!isDone);
  }
}

function until(byMs: number): { query_timeout: number } {
  return { query_timeout: Math.max(1, byMs - nowMs()) };
}
