import * as z from 'zod/mini';
import { json, Problem } from '../../shared/index.ts';
import { deployedService, type MutationRoute, storableText } from '../../shared/service/index.ts';
import { insufficientCoins, noSuchPlayer, playerHasChanged } from './responses.ts';
import { COINS_MAX, transfer } from './wallet.ts';

const body = z.strictObject({
  to: storableText(255),
  amount: z.int().check(z.minimum(1), z.maximum(COINS_MAX)),
});

export const transferCoins: MutationRoute<z.infer<typeof body>> = {
  name: 'transfer-coins',
  body,
  stateUrl: '/players/me',
  judgesIfMatch: true,
  run: async ({ principal, body: { to, amount }, ifMatch, once }) => {
    if (to === principal)
      throw new Problem('BODY_INVALID', 'to: a transfer needs two different players');
    return once(async (tx) => {
      const transferred = await transfer(tx, { from: principal, to, amount, ifMatch });
      switch (transferred.kind) {
        case 'transferred': {
          const { from } = transferred;
          return json(200, { from, to, amount }, { etag: `"${from.dataVersion}"` });
        }
        case 'stale':
          throw playerHasChanged();
        case 'insufficient':
          return insufficientCoins(amount);
        case 'receiver-full':
          throw new Problem(
            'BODY_INVALID',
            `amount: ${JSON.stringify(to)} cannot hold so many coins`,
          );
        case 'sender-missing':
          throw noSuchPlayer(principal);
        case 'receiver-missing':
          throw noSuchPlayer(to);
      }
    });
  },
};

export const handler = deployedService().mutation(transferCoins);
