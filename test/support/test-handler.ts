import * as z from 'zod/mini';
import type { HttpResponse } from '../../shared/index.ts';
import type { HttpWork } from '../../shared/lambda/index.ts';
import type { Tx } from '../../shared/postgres/index.ts';
import type { Handler, Service } from '../../shared/service/index.ts';

export const DONE: HttpResponse = { statusCode: 200, body: 'done' };

/** The stores in Postgres, by the name of the method that makes a handler on them. */
export const STORES = ['mutation', 'recordMutation'] as const;

/** A protected handler around any work, for what the real ones never do. */
export function testHandler(
  service: Service,
  work: (tx: Tx, principal: string) => ReturnType<HttpWork<Tx>>,
  store: (typeof STORES)[number] = 'mutation',
): Handler {
  return service[store]({
    name: 'probe',
    body: z.unknown(),
    stateUrl: '/players/me',
    run: ({ once, principal }) => once((tx) => work(tx, principal)),
  });
}

/** The smallest effect: one coin less, one version more. */
export async function takeCoin(tx: Tx, principal: string): Promise<HttpResponse> {
  await tx.query(
    'UPDATE players SET coins = coins - 1, data_version = data_version + 1 WHERE user_id = $1',
    [principal],
  );
  return DONE;
}
