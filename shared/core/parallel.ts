/**
 * Mode `parallel`: the store is asked while the cache is, and the cache is heard before it. What
 * it adds to `once` is in this file: a store and a work that give way once the cache has the
 * answer.
 */

import type { Store, Work } from './contract.ts';
import { type CacheClaim, isOpen, type Kept, type Mutation, NO_CLAIM } from './contract.ts';
import { answerIn, decoded, type Ending, type OnceParts, runInStore } from './once.ts';
import type { NotCommitted } from './outcome.ts';

/** What the cache answers, once it has: from then on nothing else counts. Never rejects. */
type Answering = Promise<NotCommitted<Kept> | undefined>;

export async function runInParallel<Tx, Returned, Result>(
  mutation: Mutation,
  work: Work<Tx, Returned>,
  parts: OnceParts<Tx, Returned, Result>,
  claiming: Promise<CacheClaim>,
): Promise<Ending<Result>> {
  const { codec, store } = parts;
  const answering = claiming.then(({ lookup }) => answerIn(lookup, mutation, codec));
  const ending = await runInStore(
    mutation,
    givingWayTo(answering, work),
    { ...parts, store: heeding(answering, store) },
    // Of an entry that holds the answer nothing is ours.
    async () => ((await answering) ? NO_CLAIM : claiming),
  );
  const answer = await answering;
  return answer ? { ...ending, outcome: decoded(answer, codec), decidedBy: 'cache' } : ending;
}

/** Its claim may be waiting for the very request that the cache knows of: the wait ends here. */
function givingWayTo<Tx, Returned>(
  answering: Answering,
  work: Work<Tx, Returned>,
): Work<Tx, Returned> {
  const throwIfAnswered = async () => {
    if (await answering) throw new Error('the cache has the answer');
  };
  return async (tx) => (await Promise.all([work(tx), throwIfAnswered()]))[0];
}

function heeding<Tx>(answering: Answering, store: Store<Tx>): Store<Tx> {
  return {
    ...store,
    begin: async (request) => {
      const begun = await store.begin(request);
      if (!isOpen(begun)) return (await answering) ?? begun;
      return {
        ...begun,
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
