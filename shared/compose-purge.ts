/** The composition root of the scheduled purge, apart from the requests': it needs none of their parts. */
import type { Context } from 'aws-lambda';
import { type Config, loadConfig } from './config.ts';
import { createLogger } from './logger.ts';
import { createMeter } from './metrics.ts';
import { createDatabase } from './postgres/pool.ts';
import { type PurgeResult, purgeMarkers } from './purge/worker.ts';

export interface Purge {
  run(context: Pick<Partial<Context>, 'getRemainingTimeInMillis'>): Promise<PurgeAnswer>;
  close(): Promise<void>;
}

export type PurgeAnswer = Omit<PurgeResult, 'batchDurationsSeconds'>;

/** The scheduled purge, on a connection and a role of its own. */
export function createPurge(config: Config): Purge {
  const logger = createLogger('backstop-purge');
  const meter = createMeter('backstop-purge');
  const { pool } = createDatabase({
    connectionString: config.purgeDatabaseUrl,
    max: 1,
    pipeline: false,
    connectTimeoutMs: config.databaseConnectTimeoutMs,
    onIdleError: (error) => logger.warn('An idle database connection was lost', error),
  });
  return {
    run: async ({ getRemainingTimeInMillis }) => {
      const result = await purgeMarkers({
        db: pool,
        keepMs: config.purgeRetentionMs + config.purgeMarginMs,
        batchRowsMax: config.purgeBatchRowsMax,
        remainingMs: getRemainingTimeInMillis ?? (() => config.requestTimeoutMs),
      });
      const { batchDurationsSeconds: _, ...answer } = result;
      meter.cleanup(result);
      logger.info('purge', answer);
      return answer;
    },
    close: () => pool.end(),
  };
}

let sharedPurge: Purge | undefined;

/** The purge of this process, from its environment. */
export function deployedPurge(): Purge {
  sharedPurge ??= createPurge(loadConfig());
  return sharedPurge;
}
