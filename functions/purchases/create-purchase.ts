import * as z from 'zod/mini';
import { json, Problem } from '../../shared/index.ts';
import type { RecordTx } from '../../shared/postgres/index.ts';
import { deployedService, type MutationRoute, storableText } from '../../shared/service/index.ts';
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
        case 'purchased': {
          const { receipt } = purchased;
          return json(201, receipt, { location: `/purchases/${receipt.id}` });
        }
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
