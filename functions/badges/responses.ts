import type { HttpResponse } from '../../shared/index.ts';
import type { Profile } from './badges.ts';

export function profileResponse(profile: Profile, isCreated = false): HttpResponse {
  return {
    statusCode: isCreated ? 201 : 200,
    headers: {
      'content-type': 'application/json',
      etag: `"${profile.dataVersion}"`,
      ...(isCreated && { location: '/players/me/badges' }),
    },
    body: JSON.stringify(profile),
  };
}
