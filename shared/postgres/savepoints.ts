import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';

/** In every name of ours: a newer savepoint of the same name, the work's own, would shadow it. */
const OURS = `backstop_${randomUUID().replaceAll('-', '')}`;

/** `ROLLBACK TO` it undoes all that the work did. */
export const WORK_SAVEPOINT = `${OURS}_work`;

interface Savepoint {
  readonly name: string;
  /** The savepoints of its transaction that are open, the innermost last. */
  readonly open: readonly Savepoint[];
}

export interface Savepoints {
  /** See `Tx.savepoint`. */
  run<T>(work: () => Promise<T>): Promise<T>;
  /** The savepoint that a statement sent now would be undone with. */
  innermost(): string;
  /** @throws Error for a statement beside an open savepoint, or of one that is over. */
  assertInside(): void;
}

/** In which savepoint the code runs that is asking. */
const CURRENT = new AsyncLocalStorage<Savepoint>();

/** The savepoints of one transaction. `send` sends in order, and rejects once the work has settled. */
export function openSavepoints(send: (text: string) => Promise<unknown>): Savepoints {
  const open: Savepoint[] = [];
  let count = 0;
  const assertInside = () => {
    const current = CURRENT.getStore();
    const isOver = current?.open === open && !open.includes(current);
    if (isOver) {
      throw new Error(
        'tx: this statement belongs to a savepoint that is over. It was not sent: what the savepoint had done before may be undone, and half of it would stay.',
      );
    }
    if (open.length > 0 && current !== open.at(-1)) {
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
      const savepoint: Savepoint = { name: `${OURS}_${++count}`, open };
      open.push(savepoint);
      // With those inside of it, if any are left: what is sent for them from now on is refused.
      const close = () => {
        const at = open.indexOf(savepoint);
        if (at >= 0) open.splice(at);
      };
      // What the work sends queues up behind it, and fails with it.
      const opened = send(`SAVEPOINT ${savepoint.name}`);
      opened.catch(() => {}); // On a duplicate the work rejects first, and nobody awaits it.
      try {
        const result = await CURRENT.run(savepoint, work);
        await opened;
        close();
        // Fails when the work swallowed an error that had aborted the transaction.
        await send(`RELEASE SAVEPOINT ${savepoint.name}`);
        return result;
      } catch (error) {
        close();
        // When this fails as well, the transaction is lost, and COMMIT answers ROLLBACK.
        await send(`ROLLBACK TO SAVEPOINT ${savepoint.name}`).catch(() => {});
        throw error;
      }
    },
  };
}
