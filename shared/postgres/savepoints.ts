import { AsyncLocalStorage } from 'node:async_hooks';

/** `ROLLBACK TO` it undoes all that the work did. A name that nobody picks: a newer savepoint of the same name would shadow it. */
export const WORK_SAVEPOINT = 'backstop_work_7f3a';

interface Savepoint {
  readonly name: string;
}

export interface Savepoints {
  /** See `Tx.savepoint`. */
  run<T>(work: () => Promise<T>): Promise<T>;
  /** The savepoint that a statement sent now would be undone with. */
  innermost(): string;
  /** @throws Error when a savepoint is open that the caller is not part of. */
  assertInside(): void;
}

/** In which savepoint the code runs that is asking. */
const CURRENT = new AsyncLocalStorage<Savepoint>();

/** The savepoints of one transaction. `send` sends in order, and rejects once the work has settled. */
export function openSavepoints(send: (text: string) => Promise<unknown>): Savepoints {
  const open: Savepoint[] = [];
  let count = 0;
  const assertInside = () => {
    if (open.length > 0 && CURRENT.getStore() !== open.at(-1)) {
      throw new Error(
        'tx: a savepoint is open, and this statement is not part of it: it would be undone with the savepoint. Await tx.savepoint(fn) before sending more, or send it inside fn.',
      );
    }
  };
  return {
    assertInside,
    innermost: () => open.at(-1)?.name ?? WORK_SAVEPOINT,
    run: async (work) => {
      assertInside();
      const savepoint = { name: `backstop_savepoint_${++count}` };
      open.push(savepoint);
      const close = () => open.splice(open.indexOf(savepoint));
      // What the work sends queues up behind it, and fails with it.
      const opened = send(`SAVEPOINT ${savepoint.name}`);
      try {
        const result = await CURRENT.run(savepoint, work);
        await opened;
        close();
        // Fails when the work swallowed an error that had aborted the transaction.
        await send(`RELEASE SAVEPOINT ${savepoint.name}`);
        return result;
      } catch (error) {
        close();
        // When this fails as well, the transaction is lost, and COMMIT will say so.
        await send(`ROLLBACK TO SAVEPOINT ${savepoint.name}`).catch(() => {});
        throw error;
      }
    },
  };
}
