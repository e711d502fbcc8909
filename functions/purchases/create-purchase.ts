import * as z from 'zod/mini';
import {
  deployedService,
  type MutationRoute,
  Problem,
  type RecordTx,
  storableText,
} from '../../shared/index.ts';
import { insufficientCoins, noSuchPlayer, playerHasChanged } from '../players/responses.ts';
import { purchase } from './receipts.ts';

const body = z.strictObject({
  sku: storableText(100),
  quantity: z.int().check(z.minimum(1), z.maximum(1000)),
});

/** A receipt must be replayed whether or not Redis remembers it: a durable record. */
export const createPurchase: MutationRoute<z.infer<typeof body>, RecordTx> = {
  name: 'create-purchase',
  body,
  stateUrl: '/players/me',
  judgesIfMatch: true,
  run: ({ principal, body, ifMatch, once }) =>
    once(async (tx) => {
      const purchased = await purchase(tx, principal, body, ifMatch);
      switch (purchased.kind) {
        case 'purchased':
          return {
            statusCode: 201,
            headers: {
              'content-type': 'application/json',
              location: `/purchases/${purchased.receipt.id}`,
            },
            body: JSON.stringify(purchased.receipt),
          };
        case 'stale':
          throw playerHasChanged();
        case 'insufficient':
          return insufficientCoins(purchased.coins);
        case 'no-product':
          throw new Problem('NOT_FOUND', `There is no product ${JSON.stringify(body.sku)}.`);
        case 'no-player':
          throw noSuchPlayer(principal);
      }
    }),
};

export const handler = deployedService().recordMutation(createPurchase);
