import { type DynamoQueryRoute, deployedDynamoService } from '../../shared/service/index.ts';
import { findProfile } from './profiles.ts';
import { profileResponse } from './responses.ts';

export const getBadges: DynamoQueryRoute = {
  name: 'get-badges',
  run: async ({ principal, service }) =>
    profileResponse(await findProfile(service.table, principal)),
};

export const handler = deployedDynamoService().query(getBadges);
