/** Sends one transaction and learns what became of it. */
import {
  type CancellationReason,
  type DynamoDBClient,
  TransactionCanceledException,
  TransactWriteItemsCommand,
} from '@aws-sdk/client-dynamodb';
import { isDefiniteRejection } from './classify-error.ts';
import { abortAt } from './table.ts';
import type { Write } from './work.ts';

export type TransactionFate =
  | { readonly kind: 'committed' }
  /** Nothing was written. The reasons, one for each item by position; none where they did not all come. */
  | {
      readonly kind: 'cancelled';
      readonly reasons: readonly CancellationReason[];
      readonly cause: unknown;
    }
  /** Nothing was written: it was not taken, or never got there. */
  | { readonly kind: 'refused'; readonly cause: unknown }
  /** It may have been written, or may still be. */
  | { readonly kind: 'unknown'; readonly cause: unknown };

/**
 * A send whose answer is lost is sent again by the SDK, under the same token: DynamoDB
 * knows for ten minutes what it has carried out, and acknowledges it without doing it
 * again. The token is random for each built request, never made from the key: or that
 * memory would acknowledge another request, whose writes never took place.
 *
 * Once one send was left in doubt, only a success is certain: a later refusal says
 * nothing of the send before it, which may yet arrive.
 */
export async function transact(
  client: DynamoDBClient,
  token: string,
  writes: readonly Write[],
  untilAtMs: number,
): Promise<TransactionFate> {
  const command = new TransactWriteItemsCommand({
    ClientRequestToken: token,
    TransactItems: [...writes],
  });
  let isInDoubt = false;
  command.middlewareStack.add(
    (next) => async (args) => {
      try {
        return await next(args);
      } catch (error) {
        isInDoubt ||= !isDefiniteRejection(error);
        throw error;
      }
    },
    // Inside the SDK's retries, so that it sees how each send ended.
    { name: 'backstopDoubt', step: 'finalizeRequest', priority: 'low' },
  );
  try {
    await client.send(command, abortAt(untilAtMs));
    return { kind: 'committed' };
  } catch (cause) {
    if (isInDoubt) return { kind: 'unknown', cause };
    if (!(cause instanceof TransactionCanceledException)) return { kind: 'refused', cause };
    const reasons = cause.CancellationReasons ?? [];
    return { kind: 'cancelled', reasons: reasons.length === writes.length ? reasons : [], cause };
  }
}
