/**
 * Mode `parallel`: both are asked at once, and an answer of the cache comes first. What it
 * adds to `once` is here: a work and a store that give way once the cache has the answer.
 */
import { isOpen, type Store, type Work } from './contract.ts';
import type { NotCommitted } from './outcome.ts';

/**
 * What the cache answers, where it does: from then on nothing else counts, and `once` puts it in the
 * place of whatever the store came to. Never rejects.
 */
export type Answering = Promise<NotCommitted<unknown> | undefined>;

/** Its claim may be waiting for the very request that the cache knows of: the wait ends here. */
export function workGivingWayTo<Tx, Returned>(
  answering: Answering,
  work: Work<Tx, Returned>,
): Work<Tx, Returned> {
  const throwIfAnswered = async () => {
    if (await answering) throw new Error('the cache has the answer');
  };
  return async (tx) => (await Promise.all([work(tx), throwIfAnswered()]))[0];
}

export function storeGivingWayTo<Tx>(answering: Answering, store: Store<Tx>): Store<Tx> {
  // By name, since a store of anybody's may be an instance of a class.
  return {
    release: async (mutation) => store.release?.(mutation),
    begin: async (request) => {
      const begun = await store.begin(request);
      if (!isOpen(begun)) return (await answering) ?? begun;
      return {
        tx: begun.tx,
        claimed: begun.claimed,
        commit: (completion) => begun.commit(completion),
        cancel: () => begun.cancel(),
        rollback: async (error) => {
          const answer = await answering;
          if (!answer) return begun.rollback(error);
          await begun.cancel();
          if (request.key !== undefined) await store.release?.(request);
          return answer;
        },
      };
    },
  };
}
