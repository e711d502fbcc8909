/** The reference service's function on DynamoDB, with a fault proxy in between. */
import * as z from 'zod/mini';
import { awardBadge } from '../../functions/badges/award-badge.ts';
import { getBadges } from '../../functions/badges/get-badges.ts';
import {
  dynamoWork,
  type Item,
  type TableReader,
  type TransactionPlan,
} from '../../shared/dynamodb/index.ts';
import type { HttpResponse, Problem } from '../../shared/index.ts';
import {
  createDynamoService,
  type DynamoService,
  type Handler,
} from '../../shared/service/index.ts';
import { createTestTable, type TestTable } from './dynamodb.ts';
import { type HttpFaultProxy, startHttpFaultProxy } from './http-fault-proxy.ts';
import { PATIENT } from './patience.ts';
import { TEST_NAMESPACE } from './redis.ts';
import { newKey } from './requests.ts';

export interface DynamoFixture {
  readonly table: TestTable;
  readonly proxy: HttpFaultProxy;
  /** A service as one execution environment has it, on the proxy. */
  service(environment?: Record<string, string>): DynamoService;
  readonly award: Handler;
  readonly list: Handler;
  /** A protected handler around any work, for what the real one never does. */
  testHandler(
    work: (
      table: TableReader,
      principal: string,
    ) => Promise<TransactionPlan<HttpResponse | Problem>>,
    service?: DynamoService,
  ): Handler;
  markersOf(principal: string): Promise<Item[]>;
  badgesOf(principal: string): Promise<{ badges: string[]; version: number }>;
  /** The ClientRequestToken of each transaction that was sent since the last look, in order. */
  takeTokens(): string[];
  close(): Promise<void>;
}

/** @param own What its services are told on top; without it no busy machine reaches a time-out. */
export async function openDynamoFixture(
  endpoint: string,
  own: Readonly<Record<string, string>> = {},
): Promise<DynamoFixture> {
  const table = await createTestTable(endpoint);
  const proxy = await startHttpFaultProxy(endpoint);
  const services: DynamoService[] = [];
  const service = (environment: Record<string, string> = {}) => {
    const opened = createDynamoService({
      DYNAMODB_ENDPOINT: proxy.url,
      DYNAMODB_TABLE: table.name,
      BACKSTOP_NAMESPACE: TEST_NAMESPACE,
      BACKSTOP_DYNAMO_CONNECT_TIMEOUT_MS: '20000',
      BACKSTOP_DYNAMO_REQUEST_TIMEOUT_MS: '20000',
      ...PATIENT,
      ...own,
      ...environment,
    });
    services.push(opened);
    return opened;
  };
  const usual = service();
  let seen = 0;
  return {
    table,
    proxy,
    service,
    award: usual.mutation(awardBadge),
    list: usual.query(getBadges),
    testHandler: (work, on = usual) =>
      on.mutation({
        name: 'probe',
        body: z.unknown(),
        stateUrl: '/players/me/badges',
        run: ({ once, principal }) => once(dynamoWork((reader) => work(reader, principal))),
      }),
    markersOf: (principal) => table.items(`idem:${principal.length}:${principal}:`),
    badgesOf: async (principal) => {
      const item = await table.item(`player:${principal}`);
      return {
        badges: (item?.['badges']?.L ?? []).map(({ S }) => S as string),
        version: Number(item?.['data_version']?.N ?? 0),
      };
    },
    takeTokens: () => {
      const tokens = proxy.calls
        .slice(seen)
        .filter(({ operation }) => operation === 'TransactWriteItems')
        .map(({ body }) => body['ClientRequestToken'] as string);
      seen = proxy.calls.length;
      return tokens;
    },
    close: async () => {
      for (const opened of services) await opened.close();
      await proxy.close();
      await table.drop();
    },
  };
}

/** A request for a badge, by a new player and under a new key. */
export function badgeRequest(badge = 'gold') {
  return { principal: `p-${newKey()}`, key: newKey(), path: '/players/me/badges', body: { badge } };
}
