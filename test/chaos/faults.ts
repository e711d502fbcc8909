/** Faults between the handlers and the three servers, one after the other, until it is told to stop. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { TestDatabase } from '../support/database.ts';
import type { FaultProxy } from '../support/fault-proxy.ts';
import { type HttpFaultProxy, loseAnswer, loseRequest } from '../support/http-fault-proxy.ts';
import type { Random } from './random.ts';

export interface Servers {
  readonly db: TestDatabase;
  readonly postgres: FaultProxy;
  readonly redis: FaultProxy;
  readonly rawRedis: Redis;
  readonly dynamodb: HttpFaultProxy;
}

type Fault = (servers: Servers, random: Random) => unknown;

const COMMIT = 'COMMIT\0';

/** Each lasts until the next look; a rule that has not struck by then is forgotten. */
export const FAULTS: Readonly<Record<string, Fault>> = {
  'postgres: every connection is reset': ({ postgres }) => postgres.reset(),
  'postgres: no connection is accepted': ({ postgres }) => postgres.refuse(),
  'postgres: open connections go silent': ({ postgres }) => postgres.freezeOpen(),
  'postgres: the answer to COMMIT is lost': ({ postgres }) => void postgres.dropAfter(COMMIT),
  'postgres: the answer to COMMIT never comes': ({ postgres }) =>
    void postgres.dropAfter(COMMIT, 'silence'),
  'postgres: COMMIT is lost': ({ postgres }) => void postgres.dropBefore(COMMIT),
  'postgres: the effect is lost': ({ postgres }) => void postgres.dropBefore('INSERT INTO effects'),
  'postgres: COMMIT is late': ({ postgres }) => void postgres.holdAt(COMMIT),
  'postgres: the answer to the claim is late': ({ postgres }) => void postgres.holdAnswer('claim_'),
  'postgres: the answer to the publish is lost': ({ postgres }) =>
    void postgres.dropAfter('publish_record'),
  'postgres: backends are terminated': ({ db }) =>
    db.sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND usename = 'backstop_api' AND random() < 0.5`,
    ),
  'redis: every connection is reset': ({ redis }) => redis.reset(),
  'redis: no connection is accepted': ({ redis }) => redis.refuse(),
  'redis: a black hole': ({ redis }) => redis.blackHole(),
  'redis: a command is lost': ({ redis }) => void redis.dropBefore('idem'),
  'redis: an answer is lost': ({ redis }) => void redis.dropAfter('idem'),
  'redis: an answer never comes': ({ redis }) => void redis.dropAfter('idem', 'silence'),
  'redis: slow': ({ redis }) => redis.delay({ toServer: 30, toClient: 30 }),
  'redis: all is forgotten': ({ rawRedis }) => rawRedis.flushall(),
  'dynamodb: an answer is lost': ({ dynamodb }) =>
    dynamodb.next('TransactWriteItems', loseAnswer('reset')),
  'dynamodb: a request is lost': ({ dynamodb }) =>
    dynamodb.next('TransactWriteItems', loseRequest()),
  'dynamodb: no connection is accepted': ({ dynamodb }) => dynamodb.refuse(),
};

/**
 * @param isOver asked before each fault.
 * @returns how often each was made.
 */
export async function makeFaults(
  servers: Servers,
  random: Random,
  isOver: () => boolean,
): Promise<Record<string, number>> {
  const made: Record<string, number> = {};
  while (!isOver()) {
    const name = random.pick(Object.keys(FAULTS));
    made[name] = (made[name] ?? 0) + 1;
    await FAULTS[name]?.(servers, random);
    await sleep(random.between(10, 250));
    if (random.next() < 0.7) await mend(servers);
  }
  await mend(servers);
  return made;
}

async function mend({ postgres, redis, dynamodb }: Servers): Promise<void> {
  await Promise.all([postgres.pass(), redis.pass(), dynamodb.pass()]);
}
