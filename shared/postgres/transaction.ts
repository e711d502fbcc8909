import type { PoolClient, QueryConfig, QueryResult, QueryResultRow } from 'pg';
import { nowMs } from '../core/clock.ts';
import { BeginError, meaningOf } from './classify-error.ts';
import { connectionOf, corkWrites, destroySocket, nextStatus } from './pg-insides.ts';
import { openSavepoints, WORK_SAVEPOINT } from './savepoints.ts';
import { answeredAtOnce } from './silence.ts';
import { transactionControlIn } from './transaction-control.ts';

/** The work's handle on the transaction. Refuses queries once the work has settled. */
export interface Tx {
  /**
   * One statement, by the extended protocol. The returned promise need not be awaited at once, or
   * at all: what was sent is in the transaction, and a failure of it aborts the transaction.
   *
   * @throws Error for BEGIN, COMMIT, ROLLBACK and the like, which are not sent, in any spelling:
   * the transaction holds the claim, so the work can neither end it nor leave it. Once refused,
   * the attempt rolls back and the key stays unused, whatever the work makes of the error.
   */
  query<Row extends QueryResultRow = QueryResultRow>(
    text: string,
    values?: readonly unknown[],
  ): Promise<QueryResult<Row>>;
  /**
   * Runs `fn` behind a savepoint: when it rejects, what it sent is undone, nothing else, and its
   * error is thrown. Nests. Await it before the work sends more: a statement or a savepoint
   * beside an open one is refused.
   */
  savepoint<T>(fn: () => Promise<T>): Promise<T>;
  /**
   * Undoes what the work did so far (inside `savepoint`: what that did so far) and keeps the
   * claim, to read afresh and try again.
   */
  restart(): Promise<void>;
}

/**
 * What COMMIT would mean if BEGIN had failed is in the claim function: it refuses
 * to run unless the transaction is DEFERRABLE, which is off outside of one. READ
 * COMMITTED, so that a claim that waited sees what the other committed.
 */
const BEGIN = 'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE DEFERRABLE';

const OPEN_WORK = `SAVEPOINT ${WORK_SAVEPOINT}`;
const UNDO_WORK = `ROLLBACK TO SAVEPOINT ${WORK_SAVEPOINT}`;

export interface TransactionOptions {
  readonly client: PoolClient;
  readonly pipeline: boolean;
  /** Past this an answer is no longer waited for, and the connection is given up. */
  readonly answerUntilAtMs: number;
  /** Step 0, sent right behind BEGIN. */
  readonly step0: (send: Send) => Promise<unknown>;
}

export type Send = <Row extends QueryResultRow>(
  text: string,
  values?: readonly unknown[],
) => Promise<QueryResult<Row>>;

export interface Statement {
  readonly text: string;
  readonly values: readonly (string | Buffer)[];
}

export interface Transaction {
  readonly tx: Tx;
  /** Resolves when BEGIN, step 0 and the savepoint behind it have all succeeded. */
  readonly begun: Promise<unknown>;
  /** Has `begun` resolved? */
  isBegun(): boolean;
  /** The first error that was not undone since; it names what broke the transaction. */
  firstError(): unknown;
  /**
   * Set when ReadyForQuery showed that the transaction had ended before our COMMIT or ROLLBACK: what
   * became of its statements cannot be known.
   */
  endedEarly(): Error | undefined;
  /** The refusal of a statement that would have ended the transaction. */
  refusal(): Error | undefined;
  /**
   * Sends `last`, if there is one, and COMMIT behind it, which becomes a ROLLBACK when
   * `last` fails. Its values are strings and bytes, so that nothing but the server can refuse it:
   * a failure on this side would not keep COMMIT from being sent.
   *
   * @returns the tag (only 'COMMIT' is one), and the row that `last` answered.
   */
  commit<Row extends QueryResultRow>(
    keepWrites: boolean,
    last?: Statement,
  ): Promise<{ readonly tag: string; readonly lastRow: Row | undefined }>;
  /** Ends it whatever state it is in, and gives the client back or destroys it. Never rejects; twice is once. */
  end(): Promise<void>;
  /** Loses the connection, so that nobody uses it again; `end` is still owed. */
  destroy(): void;
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
  const begun = options.pipeline
    ? sendFirstSteps(wire, options)
    : sendFirstStepsInTurn(wire, options);
  let isBegun = false;
  let isSettled = false;
  let ended: Promise<void> | undefined;
  begun.then(
    () => {
      isBegun = true;
    },
    () => {}, // The work may throw first, and then nobody asks.
  );

  const sendWork: Send = async (text, values) => {
    if (!options.pipeline) await begun;
    // Behind the wait: the work may have settled meanwhile.
    if (isSettled) throw new Error('tx.query: the work has settled, so this query was not sent');
    const answer = wire.sendExtended<never>(text, values);
    answer.catch(() => {}); // Judged behind `begun`, whose error outranks it.
    await begun;
    return answer;
  };
  const savepoints = openSavepoints(sendWork);
  let refusal: Error | undefined;

  const query: Tx['query'] = async (text, values) => {
    assertStatement(text, values);
    if (COPY_IN.test(text)) throw copyError();
    const control = transactionControlIn(text);
    if (control !== undefined) {
      refusal ??= refusalOf(control);
      throw refusal;
    }
    savepoints.assertInside();
    return sendWork(text, values);
  };

  const end = () => {
    isSettled = true;
    ended ??= returnClient(options, wire);
    return ended;
  };

  return {
    tx: {
      query: (text, values) => handled(query<never>(text, values)),
      savepoint: (fn) => handled(savepoints.run(fn)),
      restart: () =>
        handled(query(`ROLLBACK TO SAVEPOINT ${savepoints.innermost()}`).then(() => {})),
    },
    begun,
    isBegun: () => isBegun,
    firstError: wire.firstError,
    endedEarly: wire.endedEarly,
    refusal: () => refusal,
    commit: async (keepWrites, last) => {
      isSettled = true;
      // Failures need no look of their own: COMMIT answers ROLLBACK then.
      if (!keepWrites) wire.send(UNDO_WORK).catch(() => {});
      wire.expectEnd();
      const answering = last && wire.send<never>(last.text, last.values).catch(() => undefined);
      const { command } = await wire.send('COMMIT');
      return { tag: command, lastRow: (await answering)?.rows[0] };
    },
    end,
    destroy: wire.destroySocket,
    endSoon: async () => {
      const timer = setTimeout(wire.destroySocket, END_SOON_MS);
      await end();
      clearTimeout(timer);
    },
  };
}

const COPY_IN = /^\s*COPY\b[^;]*\bFROM\s+STDIN\b/i;

/** The server would wait for rows until the deadline. */
function copyError(): Error {
  return new Error(
    'tx.query: COPY … FROM STDIN was not sent, since nothing here can send the rows. Use INSERT … SELECT * FROM unnest($1::text[], …).',
  );
}

/** pg takes more than texts, such as objects that write to the socket themselves. */
function assertStatement(text: unknown, values: unknown): asserts text is string {
  if (typeof text === 'string' && (values === undefined || Array.isArray(values))) return;
  throw new TypeError('tx.query takes a text and, for $1, $2 and so on, an array of values');
}

/**
 * On a duplicate every query of the work rejects; one that nobody awaits would end the process
 * as an unhandled rejection, though the attempt itself ends as it should.
 */
export function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

function refusalOf(control: string): Error {
  if (control === 'SET' || control === 'RESET') {
    return new Error(
      `tx.query: ${control} was not sent. It outlives the transaction, so the next request on this connection would run under it. Use SET LOCAL.`,
    );
  }
  return new Error(
    `tx.query: ${control} was not sent. The transaction belongs to the request: it holds the claim, and COMMIT follows when the work has returned. To undo a part of the work use tx.savepoint(fn); to undo all of it, throw.`,
  );
}

/**
 * A key that was used up is known as such by now, or in a moment; a claim that waits for
 * another's may wait to the deadline, and costs its connection.
 */
const END_SOON_MS = 100;

async function sendFirstSteps(wire: Wire, { client, step0 }: TransactionOptions): Promise<unknown> {
  const steps = [begin(wire, client), step0(wire.send), wire.send(OPEN_WORK)];
  // The first in order, not the first in time, is the one to blame.
  const settled = await Promise.allSettled(steps);
  const failed = settled.findIndex(({ status }) => status === 'rejected');
  if (failed === 0) throw new BeginError((settled[0] as PromiseRejectedResult).reason);
  if (failed > 0) throw (settled[failed] as PromiseRejectedResult).reason;
  return (settled[1] as PromiseFulfilledResult<unknown>).value;
}

async function sendFirstStepsInTurn(
  wire: Wire,
  { client, step0 }: TransactionOptions,
): Promise<unknown> {
  await begin(wire, client).catch((reason: unknown) => {
    throw new BeginError(reason);
  });
  const claim = await step0(wire.send);
  await wire.send(OPEN_WORK);
  return claim;
}

/**
 * BEGIN waits for nobody, so its answer comes at once or never: a connection that died while the
 * environment was frozen looks open until TCP notices, minutes later. Nothing was claimed on it.
 */
function begin(wire: Wire, client: PoolClient): Promise<unknown> {
  return answeredAtOnce(client, wire.send(BEGIN));
}

interface Wire {
  /** A statement of ours. */
  readonly send: Send;
  /** A statement of the work's: always by the extended protocol, which takes one statement a text. */
  readonly sendExtended: Send;
  firstError(): unknown;
  endedEarly(): Error | undefined;
  /** What is sent from now on ends the transaction. */
  expectEnd(): void;
  /** Answers still to come. */
  outstanding(): number;
  /** Loses the connection, and so every answer that is still to come. */
  destroySocket(): void;
  /** Resolves once the transaction's status is that behind the last answer, or the connection is gone. */
  statusKnown(): Promise<void>;
  /** Nothing more is sent, and nothing is waited for. */
  close(): void;
}

/** Sends in order, and remembers what the transaction's end must know. */
function openWire({ client, pipeline, answerUntilAtMs }: TransactionOptions): Wire {
  let sent = 0;
  let answered = 0;
  let firstError: unknown;
  let endedEarly: Error | undefined;
  let isEndExpected = false;
  let isStatusOwed = false;
  let previous: Promise<unknown> = Promise.resolve();
  const outstanding = () => sent - answered;
  // What waits behind a late answer in a pipeline cannot go on: the connection is given up.
  const timer = setTimeout(() => destroySocket(client), Math.max(1, answerUntilAtMs - nowMs()));

  // Follows each answer. BEGIN's own is judged by its error.
  const onReady = ({ status }: { readonly status: string }) => {
    isStatusOwed = false;
    if (status !== 'I' || answered === 0 || endedEarly) return;
    if (isEndExpected && outstanding() === 0) return;
    endedEarly = new Error(
      'The transaction ended before its COMMIT was sent, so nothing is known of what its statements did. The connection was given up.',
      { cause: firstError },
    );
    destroySocket(client);
  };
  connectionOf(client).on('readyForQuery', onReady);

  const submit = <Row extends QueryResultRow>(
    text: string,
    values: readonly unknown[] | undefined,
    isExtended: boolean,
  ): Promise<QueryResult<Row>> =>
    new Promise((resolve, reject) => {
      if (pipeline) corkWrites(client);
      let isAnswered = false;
      const onAnswer = (error: Error | null, result?: QueryResult<Row>) => {
        // pg calls back twice for a value that it cannot serialise.
        if (!isAnswered) answered++;
        isAnswered = true;
        // By the result: a value's own toPostgres may throw anything, undefined included.
        if (result === undefined) {
          // What failed on this side has aborted nothing on the server.
          if (meaningOf(error) !== undefined) {
            firstError ??= error;
            isStatusOwed = true;
          }
          reject(error ?? new Error('tx.query: a value could not be sent'));
          return;
        }
        // ROLLBACK TO, and not the tag of a COMMIT that failed: what failed is undone.
        if (result.command === 'ROLLBACK' && !isEndExpected) firstError = undefined;
        resolve(result);
      };
      // With a callback, and an object of options only where no values choose the extended
      // protocol: pg clones the object at the cost of the whole rest.
      const needsMode = isExtended && !values?.length;
      const query = needsMode ? ({ text, queryMode: 'extended' } as QueryConfig) : text;
      client.query(query as string, values as unknown[], onAnswer as never);
    });

  const sender =
    (isExtended: boolean): Send =>
    (text, values) => {
      sent++;
      const answer = pipeline
        ? submit<never>(text, values, isExtended)
        : previous.then(() => submit<never>(text, values, isExtended));
      if (!pipeline) previous = answer.catch(() => {});
      return answer;
    };
  return {
    send: sender(false),
    sendExtended: sender(true),
    firstError: () => firstError,
    endedEarly: () => endedEarly,
    expectEnd: () => {
      isEndExpected = true;
    },
    outstanding,
    destroySocket: () => destroySocket(client),
    statusKnown: () => (isStatusOwed ? nextStatus(client) : Promise.resolve()),
    close: () => {
      clearTimeout(timer);
      connectionOf(client).off('readyForQuery', onReady);
    },
  };
}

/** A client returns to the pool idle and with an empty queue, or not at all. */
async function returnClient({ client }: TransactionOptions, wire: Wire): Promise<void> {
  const isIdle = () => wire.outstanding() === 0 && client.getTransactionStatus() === 'I';
  wire.expectEnd();
  // pg reports a refused COMMIT before the ReadyForQuery behind it, which says that it is idle.
  if (wire.outstanding() === 0) await wire.statusKnown();
  if (!isIdle()) await wire.send('ROLLBACK').catch(() => {});
  wire.close();
  // On `true` the pool destroys it, and the server ends what was left open.
  client.release(!isIdle() || connectionOf(client).stream.destroyed);
}
