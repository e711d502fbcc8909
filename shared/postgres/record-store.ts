import { setTimeout as sleep } from 'node:timers/promises';
import type { PoolClient } from 'pg';
import { nowMs } from '../core/clock.ts';
import {
  ANSWER_GRACE_MS,
  COMMIT_LOOKUP_GRACE_MS,
  type Kept,
  type Mutation,
  type OpenTransaction,
  type Store,
  type Unprotected,
} from '../core/contract.ts';
import { decodeKept } from '../core/kept.ts';
import { LeaseLostError, type NotCommitted } from '../core/outcome.ts';
import { openClaimed } from './claimed-transaction.ts';
import { meaningOf, outcomeAtClaim, outcomeAtConnect } from './classify-error.ts';
import { acquire, type Database } from './pool.ts';
import { promiseRetention } from './promise.ts';
import {
  claimRecord,
  PUBLISH_HOME,
  type PublishHome,
  proofOfRecord,
  publishStatement,
  RECORD_NEEDS,
  RELEASE,
  RENEW,
  type RecordClaim,
  releaseValues,
} from './records.ts';
import { answeredAtOnce } from './silence.ts';
import { enterTransaction } from './step-zero.ts';
import { handled, type Tx } from './transaction.ts';

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

/** The work's handle on the transaction, and on its lease. */
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
  for (const part of [RECORD_NEEDS, PUBLISH_HOME]) database.addConnectionCheck(part);
  promiseRetention(database, 'idempotency_records', retentionMs);
  return {
    warm: database.warm,
    begin: async (request) => {
      let client: PoolClient;
      try {
        client = await acquire(database.pool, request.deadlineMs);
      } catch (cause) {
        return outcomeAtConnect(cause);
      }
      return request.key === undefined
        ? openUnclaimed(options, request, client)
        : claimAndOpen(options, request, client);
    },
    release: async (mutation) => {
      // Work that was cut off ended when ANSWER_GRACE_MS did: the release has its own time after it.
      const untilAtMs = mutation.deadlineMs + COMMIT_LOOKUP_GRACE_MS;
      try {
        const client = await acquire(database.pool, untilAtMs);
        await withClient(client, () =>
          client.query({ text: RELEASE, values: releaseValues(mutation), ...until(untilAtMs) }),
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
): Promise<OpenTransaction<RecordTx> | NotCommitted<Kept>> {
  const { database, leaseMs, retentionMs } = options;
  const deadlineServerMs = database.toServerMs(request.deadlineMs);
  let claim: RecordClaim;
  let home: PublishHome;
  try {
    home = homeOf(database);
    const answerWithinMs = until(request.deadlineMs + ANSWER_GRACE_MS).query_timeout;
    const { pipeline } = database;
    claim = await claimRecord(client, request, {
      leaseMs,
      deadlineServerMs,
      answerWithinMs,
      pipeline,
    });
  } catch (error) {
    client.release(client.getTransactionStatus() !== 'I');
    return outcomeAtClaim(error);
  }
  if (claim.outcome !== 'claimed') {
    client.release();
    return outcomeOf(claim, retentionMs);
  }
  const open = openClaimed(database, request, client, {
    step0: (send) => enterTransaction(send, deadlineServerMs),
    beforeCommit: ({ kept }) => publishStatement(home, claim.id, request.token, kept),
    proof: () => proofOfRecord(claim.id, request.token),
    retentionMs,
  });
  return withLease(open, () => renew(options, claim.id, request));
}

/** Known before the claim: what fails beside COMMIT without reaching the server does not stop it. */
function homeOf(database: Database): PublishHome {
  const home = database.checkAnswer(PUBLISH_HOME.name) as PublishHome | null | undefined;
  if (!home)
    throw new Error('The connection check of this connection did not ask where publish_record is.');
  return home;
}

function outcomeOf(claim: RecordClaim, retentionMs: number): NotCommitted<Kept> {
  switch (claim.outcome) {
    case 'mismatch':
      return { kind: 'rejected', code: 'KEY_REUSED' };
    case 'completed': {
      const result = claim.response && decodeKept(claim.response.toString('utf8'));
      return { kind: 'replayed', result, expiresAtMs: (claim.completedAtMs ?? 0) + retentionMs };
    }
    case 'unreadable':
      return { kind: 'rejected', code: 'ALREADY_EXISTS' };
    default: {
      // A missing lease means locked: nobody knows for how long.
      const left = claim.leaseLeftMs;
      const known = left !== null && { retryAfterSeconds: Math.ceil(left / 1000) };
      return { kind: 'rejected', code: 'ABORTED', ...known };
    }
  }
}

function openUnclaimed(
  { database, retentionMs }: RecordStoreOptions,
  request: Unprotected,
  client: PoolClient,
): OpenTransaction<RecordTx> {
  const deadlineServerMs = database.toServerMs(request.deadlineMs);
  const open = openClaimed(database, request, client, {
    step0: (send) => enterTransaction(send, deadlineServerMs),
    proof: undefined,
    retentionMs,
  });
  return withLease(open, async () => {});
}

function withLease(
  open: OpenTransaction<Tx>,
  renewLease: () => Promise<void>,
): OpenTransaction<RecordTx> {
  return { ...open, tx: { ...open.tx, renewLease: () => handled(renewLease()) } };
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
async function withClient(client: PoolClient, use: () => Promise<unknown>): Promise<void> {
  let isDone = false;
  try {
    await use();
    isDone = true;
  } finally {
    client.release(!isDone);
  }
}

function until(untilAtMs: number): { query_timeout: number } {
  return { query_timeout: Math.max(1, untilAtMs - nowMs()) };
}
