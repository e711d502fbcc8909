import { type HttpResponse, json, Problem } from '../../shared/index.ts';
import { INSUFFICIENT_COINS } from '../problems.ts';
import type { Player } from './wallet.ts';

export function playerResponse(player: Player): HttpResponse {
  return json(200, player, { etag: `"${player.dataVersion}"` });
}

export function noSuchPlayer(userId: string): Problem {
  return new Problem('NOT_FOUND', `There is no player ${JSON.stringify(userId)}.`);
}

/** Thrown, so that the key stays unused: the client reads again and decides. */
export function playerHasChanged(): Problem {
  return new Problem('VERSION_MISMATCH', 'The player has changed since the version in If-Match.');
}

/** Returned and not thrown: the refusal is the answer to this key, and a retry hears it again. */
export function insufficientCoins(amount: number): Problem {
  return new Problem(
    INSUFFICIENT_COINS,
    `The player has fewer than ${amount} coins. Nothing was taken.`,
  );
}
