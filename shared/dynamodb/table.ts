import { type AttributeValue, DynamoDBClient, GetItemCommand } from '@aws-sdk/client-dynamodb';
import { nowMs } from '../core/clock.ts';
import { errorOfRead } from './classify-error.ts';

export interface TableOptions {
  readonly name: string;
  /** Undefined: DynamoDB itself, in the Lambda's region. */
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  readonly connectTimeoutMs: number;
  /** For one send. What is lost is sent again, twice at most and within the request's deadline. */
  readonly requestTimeoutMs: number;
}

/** As DynamoDB's API has it: each value under the letter of its type. */
export type Item = Record<string, AttributeValue>;

/** One table, for the markers and for what they protect. Its partition key is `pk`, a string. */
export interface Table {
  readonly name: string;
  readonly client: DynamoDBClient;
  /**
   * Strongly consistent: it sees every write that was acknowledged.
   *
   * @throws RejectedError UNAVAILABLE when DynamoDB cannot be reached or takes no more.
   */
  get(pk: string): Promise<Item | undefined>;
  close(): void;
}

/** The SDK waits in between, with jitter: up to 25 and 50 ms, or 1 and 2 s when throttled. */
const SENDS_MAX = 3;

/** Nothing is connected, and no credentials are looked for, before the first use. */
export function createTable(options: TableOptions): Table {
  const { name } = options;
  const client = new DynamoDBClient({
    ...whereTo(options),
    maxAttempts: SENDS_MAX,
    requestHandler: {
      connectionTimeout: options.connectTimeoutMs,
      requestTimeout: options.requestTimeoutMs,
      // Without this the SDK merely warns when the time is up, and waits on.
      throwOnRequestTimeout: true,
    },
  });
  return {
    name,
    client,
    get: async (pk) => {
      try {
        return await readItem({ name, client }, pk);
      } catch (error) {
        throw errorOfRead(error);
      }
    },
    close: () => client.destroy(),
  };
}

/** @param untilAtMs on the process' clock; past it the read is given up. */
export async function readItem(
  { name, client }: Pick<Table, 'name' | 'client'>,
  pk: string,
  untilAtMs?: number,
): Promise<Item | undefined> {
  const read = new GetItemCommand({
    TableName: name,
    Key: { pk: { S: pk } },
    ConsistentRead: true,
  });
  return (await client.send(read, untilAtMs === undefined ? {} : abortAt(untilAtMs))).Item;
}

/** Ends a send, its resends included, at `untilAtMs`. */
export function abortAt(untilAtMs: number): { abortSignal: AbortSignal } {
  return { abortSignal: AbortSignal.timeout(Math.max(1, Math.ceil(untilAtMs - nowMs()))) };
}

const THIS_MACHINE = new Set(['127.0.0.1', 'localhost', '[::1]']);

/** A DynamoDB on this machine takes any credentials, so that nobody's real ones are sent to it. */
function whereTo({ endpoint, region }: TableOptions) {
  if (endpoint === undefined) return {};
  if (!THIS_MACHINE.has(new URL(endpoint).hostname)) return { endpoint };
  const credentials = { accessKeyId: 'local', secretAccessKey: 'local' };
  return { endpoint, region: region ?? 'us-east-1', credentials };
}
