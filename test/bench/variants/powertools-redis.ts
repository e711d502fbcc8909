import { CachePersistenceLayer } from '@aws-lambda-powertools/idempotency/cache';
import { createClient } from '@redis/client';
import { loadConfig } from '../../../shared/service/config.ts';
import { powertoolsHandler } from './powertools.ts';

const client = createClient({ url: loadConfig().redisUrl as string });
client.on('error', () => {});
await client.connect();

export const handler = powertoolsHandler(new CachePersistenceLayer({ client }));
