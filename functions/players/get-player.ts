import { deployedService, type QueryRoute } from '../../shared/service/index.ts';
import { noSuchPlayer, playerResponse } from './responses.ts';
import { findPlayer } from './wallet.ts';

export const getPlayer: QueryRoute = {
  name: 'get-player',
  run: async ({ principal, db }) => {
    const player = await findPlayer(db, principal);
    if (!player) throw noSuchPlayer(principal);
    return playerResponse(player);
  },
};

export const handler = deployedService().query(getPlayer);
