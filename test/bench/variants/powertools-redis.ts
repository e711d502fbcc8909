import { CachePersistenceLayer } from '@aws-lambda-powertools/idempotency/cache';
import { createClient } from '@redis/client';
import { REDIS } from '../../../shared/service/settings/redis.ts';
import { processEnvironment } from '../../../shared/service/settings.ts';
import { powertoolsHandler } from './powertools.ts';

const client = createClient({ url: REDIS.read(processEnvironment())?.url as string });
client.on('error', () => {});
await client.connect();

export const handler = powertoolsHandler(new CachePersistenceLayer({ client }));
