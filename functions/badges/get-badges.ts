import { type DynamoQueryRoute, deployedDynamoService } from '../../shared/index.ts';
import { findProfile } from './badges.ts';
import { profileResponse } from './responses.ts';

export const getBadges: DynamoQueryRoute = {
  name: 'get-badges',
  run: async ({ principal, service }) =>
    profileResponse(await findProfile(service.table, principal)),
};

export const handler = deployedDynamoService().query(getBadges);
