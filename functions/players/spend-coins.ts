import * as z from 'zod/mini';
import { deployedService, type MutationRoute, storableText } from '../../shared/service/index.ts';
import { insufficientCoins, noSuchPlayer, playerHasChanged, playerResponse } from './responses.ts';
import { COINS_MAX, spend } from './wallet.ts';

const body = z.strictObject({
  amount: z.int().check(z.minimum(1), z.maximum(COINS_MAX)),
  /** For the caller's own records; it is part of the request and so of its fingerprint. */
  reason: z.optional(storableText(200)),
});

export const spendCoins: MutationRoute<z.infer<typeof body>> = {
  name: 'spend-coins',
  body,
  stateUrl: '/players/me',
  judgesIfMatch: true,
  run: ({ principal, body: { amount }, ifMatch, once }) =>
    once(async (tx) => {
      const spent = await spend(tx, principal, amount, ifMatch);
      switch (spent.kind) {
        case 'spent':
          return playerResponse(spent.player);
        case 'insufficient':
          return insufficientCoins(amount);
        case 'stale':
          throw playerHasChanged();
        case 'missing':
          throw noSuchPlayer(principal);
      }
    }),
};

export const handler = deployedService().mutation(spendCoins);
