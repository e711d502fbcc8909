import type { Duplex } from 'node:stream';
import type { PoolClient, QueryResult, QueryResultRow } from 'pg';
import { nowMs } from '../clock.ts';
import type { Entered } from './attempt.ts';

/** The caller's hand in the transaction. Refuses queries once the work has settled. */
export interface Tx {
  query<Row extends QueryResultRow = QueryResultRow>(
    text: string,
    values?: readonly unknown[],
  ): Promise<QueryResult<Row>>;
  /** Undoes what the work did so far and keeps the claim, to read afresh and try again. */
  restart(): Promise<void>;
}

/**
 * What COMMIT would mean if BEGIN had failed is in the claim function: it refuses
 * to run unless the transaction is DEFERRABLE, which is off outside of one. READ
 * COMMITTED, so that a claim that waited sees what the other committed.
 */
const BEGIN = 'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE DEFERRABLE';

const UNDO_WORK = 'ROLLBACK TO SAVEPOINT work';

export interface TransactionOptions {
  readonly client: PoolClient;
  readonly pipeline: boolean;
  /** Past this an answer is no longer waited for, and the connection is given up. */
  readonly answerByMs: number;
  /** Step 0, sent right behind BEGIN. */
  readonly step0: (send: Send) => Promise<unknown>;
}

export type Send = <Row extends QueryResultRow>(
  text: string,
  values?: readonly unknown[],
) => Promise<QueryResult<Row>>;

export interface Transaction {
  readonly tx: Tx;
  /** Resolves when BEGIN, step 0 and the savepoint behind it have all succeeded. */
  readonly begun: Promise<unknown>;
  /** Has `begun` resolved? */
  isBegun(): boolean;
  /** The first error that any statement met; it names what broke the transaction. */
  firstError(): unknown;
  /**
   * Sends `last`, if there is one, and COMMIT behind it, which becomes a ROLLBACK when
   * `last` fails.
   *
   * @returns the tag (only 'COMMIT' is one), and what `last` answered.
   */
  commit<T>(
    keepWrites: boolean,
    last?: (send: Send) => Promise<T>,
  ): Promise<{ readonly tag: string; readonly lastAnswer: T | undefined }>;
  /** Ends it whatever state it is in, and gives the client back or destroys it. Never rejects; twice is once. */
  end(): Promise<void>;
  /** As `end`, but soon: what has not been answered by then is not waited for. */
  endSoon(): Promise<void>;
}

/**
 * Opens a transaction with its first steps already on the way. With `pipeline`
 * nothing is waited for: BEGIN, step 0, the savepoint and the work's first query
 * leave in one round trip. Without, each waits for the answer to the one before.
 */
export function openTransaction(options: TransactionOptions): Transaction {
  const wire = openWire(options);
  const begun = options.pipeline ? sendFirstSteps(wire, options) : walkFirstSteps(wire, options);
  let isBegun = false;
  let isSettled = false;
  let ended: Promise<void> | undefined;
  begun.then(
    () => {
      isBegun = true;
    },
    () => {}, // The work may throw first, and then nobody asks.
  );

  const query: Tx['query'] = async (text, values) => {
    if (isSettled) throw new Error('tx.query: the work has settled, so this query was not sent');
    if (!options.pipeline) await begun;
    const answer = wire.send<never>(text, values);
    answer.catch(() => {}); // Judged behind `begun`, whose error outranks it.
    await begun;
    return answer;
  };

  const end = () => {
    isSettled = true;
    ended ??= giveBack(options, wire);
    return ended;
  };

  return {
    tx: { query, restart: async () => void (await query(UNDO_WORK)) },
    begun,
    isBegun: () => isBegun,
    firstError: wire.firstError,
    commit: async (keepWrites, last) => {
      isSettled = true;
      // Failures need no look of their own: COMMIT answers ROLLBACK then.
      if (!keepWrites) wire.send(UNDO_WORK).catch(() => {});
      const answering = last?.(wire.send).catch(() => undefined);
      const { command } = await wire.send('COMMIT');
      return { tag: command, lastAnswer: await answering };
    },
    end,
    endSoon: async () => {
      const timer = setTimeout(wire.cut, END_SOON_MS);
      await end();
      clearTimeout(timer);
    },
  };
}

/**
 * A key that was used up is known as such by now, or in a moment; a claim that waits for
 * another's may wait to the deadline, and costs its connection.
 */
const END_SOON_MS = 100;

/**
 * A step 0 that claims nothing: it only makes sure that this is a transaction, and
 * that there is time left for it.
 */
export async function enterTransaction(send: Send, deadlineServerMs: number): Promise<Entered> {
  const { rows } = await send<Entered & QueryResultRow>(
    'SELECT enter_transaction(to_timestamp($1::float8 / 1000))::text AS xid',
    [deadlineServerMs],
  );
  return rows[0] as Entered;
}

async function sendFirstSteps(wire: Wire, { step0 }: TransactionOptions): Promise<unknown> {
  const steps = [wire.send(BEGIN), step0(wire.send), wire.send('SAVEPOINT work')];
  // The first in order, not the first in time, is the one to blame.
  const settled = await Promise.allSettled(steps);
  const failed = settled.findIndex(({ status }) => status === 'rejected');
  if (failed === 0) throw new BeginError(settled[0] as PromiseRejectedResult);
  if (failed > 0) throw (settled[failed] as PromiseRejectedResult).reason;
  return (settled[1] as PromiseFulfilledResult<unknown>).value;
}

async function walkFirstSteps(wire: Wire, { step0 }: TransactionOptions): Promise<unknown> {
  await wire.send(BEGIN).catch((reason: unknown) => {
    throw new BeginError({ reason });
  });
  const claim = await step0(wire.send);
  await wire.send('SAVEPOINT work');
  return claim;
}

/** BEGIN itself failed: nothing was claimed, whatever the statements behind it said. */
export class BeginError extends Error {
  constructor({ reason }: { readonly reason: unknown }) {
    super('BEGIN failed', { cause: reason });
    this.name = 'BeginError';
  }
}

interface Wire {
  readonly send: Send;
  firstError(): unknown;
  /** Answers still to come. */
  outstanding(): number;
  /** Loses the connection, and so every answer that is still to come. */
  cut(): void;
  /** No more is said: there is nothing left to wait for. */
  close(): void;
}

/** Sends in order, and remembers what the transaction's end must know. */
function openWire({ client, pipeline, answerByMs }: TransactionOptions): Wire {
  let outstanding = 0;
  let firstError: unknown;
  let previous: Promise<unknown> = Promise.resolve();
  // What waits behind a late answer in a pipeline cannot go on: the connection is given up.
  const cut = () => streamOf(client).destroy();
  const timer = setTimeout(cut, Math.max(1, answerByMs - nowMs()));

  const say: Send = (text, values) =>
    new Promise((resolve, reject) => {
      if (pipeline) gather(client);
      // With a callback, and no object of options: pg clones one at the cost of the whole rest.
      client.query<never>(text, values as unknown[], (error, result) => {
        outstanding--;
        firstError ??= error ?? undefined;
        if (error) reject(error);
        else resolve(result);
      });
    });

  const send: Send = (text, values) => {
    outstanding++;
    const answer = pipeline
      ? say<never>(text, values)
      : previous.then(() => say<never>(text, values));
    if (!pipeline) previous = answer.catch(() => {});
    return answer;
  };
  return {
    send,
    firstError: () => firstError,
    outstanding: () => outstanding,
    cut,
    close: () => clearTimeout(timer),
  };
}

/**
 * What is said in one turn leaves in one write (of BEGIN, claim, savepoint and the work's
 * first query together): a system call each is a tenth of the CPU time of a request.
 */
function gather(client: PoolClient): void {
  const stream = streamOf(client);
  stream.cork();
  process.nextTick(() => stream.uncork());
}

function streamOf(client: PoolClient): Duplex {
  return (client as unknown as { readonly connection: { readonly stream: Duplex } }).connection
    .stream;
}

/** A client returns to the pool idle and with an empty queue, or not at all. */
async function giveBack({ client }: TransactionOptions, wire: Wire): Promise<void> {
  const isIdle = () => wire.outstanding() === 0 && client.getTransactionStatus() === 'I';
  if (!isIdle()) await wire.send('ROLLBACK').catch(() => {});
  wire.close();
  // On `true` the pool destroys it, and the server ends what was left open.
  client.release(!isIdle());
}
