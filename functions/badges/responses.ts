import { type HttpResponse, json } from '../../shared/index.ts';
import type { Profile } from './profiles.ts';

export function profileResponse(profile: Profile, isCreated = false): HttpResponse {
  return json(isCreated ? 201 : 200, profile, {
    etag: `"${profile.dataVersion}"`,
    ...(isCreated && { location: '/players/me/badges' }),
  });
}
