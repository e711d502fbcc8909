import { IdempotencyConfig } from '@aws-lambda-powertools/idempotency';
import { makeHandlerIdempotent } from '@aws-lambda-powertools/idempotency/middleware';
import type { BasePersistenceLayer } from '@aws-lambda-powertools/idempotency/persistence';
import type { Handler } from '../../../shared/service/handlers.ts';
import { plainHandler } from './plain.ts';

/**
 * Protected as its documentation shows, by caller and key. Without the comparison of
 * bodies: its store for Redis drops the hash, so that every replay would be refused.
 */
export function powertoolsHandler(persistenceStore: BasePersistenceLayer): Handler {
  const config = new IdempotencyConfig({
    eventKeyJmesPath: '[requestContext.authorizer.jwt.claims.sub, headers."idempotency-key"]',
    throwOnNoIdempotencyKey: true,
    expiresAfterSeconds: 3600,
  });
  return plainHandler([makeHandlerIdempotent({ persistenceStore, config }) as never]);
}
