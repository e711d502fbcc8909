import * as z from 'zod/mini';
import { type DynamoTx, dynamoWork } from '../../shared/dynamodb/index.ts';
import { acceptsVersion, Problem } from '../../shared/index.ts';
import {
  deployedDynamoService,
  type MutationRoute,
  storableText,
} from '../../shared/service/index.ts';
import { findProfile, withBadge } from './profiles.ts';
import { profileResponse } from './responses.ts';

const body = z.strictObject({ badge: storableText(100) });

/** The state is an item in DynamoDB, so its protection is there too, in the same transaction. */
export const awardBadge: MutationRoute<z.infer<typeof body>, DynamoTx> = {
  name: 'award-badge',
  body,
  stateUrl: '/players/me/badges',
  judgesIfMatch: true,
  run: ({ principal, body: { badge }, ifMatch, once }) =>
    once(
      dynamoWork(async (table) => {
        const profile = await findProfile(table, principal);
        if (!acceptsVersion(ifMatch, profile.dataVersion)) {
          throw new Problem(
            'VERSION_MISMATCH',
            'The badges have changed since the version in If-Match.',
          );
        }
        const { next, write } = withBadge(table.name, profile, badge);
        return { writes: [write], response: profileResponse(next, true) };
      }),
    ),
};

export const handler = deployedDynamoService().mutation(awardBadge);
