import type { Item, TableReader, Write } from '../../shared/dynamodb/index.ts';

/** The item of a player in DynamoDB. A badge may be earned more than once: each time is an entry. */
export interface Profile {
  readonly userId: string;
  readonly badges: readonly string[];
  /** Decimal; "0" for a player who has no item yet. */
  readonly dataVersion: string;
}

export async function findProfile(table: TableReader, userId: string): Promise<Profile> {
  return toProfile(userId, await table.get(keyOf(userId)));
}

/** The profile with one more badge, and the write that makes it so if it is still as it was read. */
export function withBadge(
  tableName: string,
  profile: Profile,
  badge: string,
): { readonly next: Profile; readonly write: Write } {
  const { userId, badges, dataVersion } = profile;
  const next = {
    userId,
    badges: [...badges, badge],
    dataVersion: String(BigInt(dataVersion) + 1n),
  };
  const isNew = dataVersion === '0';
  const write: Write = {
    Update: {
      TableName: tableName,
      Key: { pk: { S: keyOf(userId) } },
      // L3, compare-and-swap: otherwise of two awards at once one would be lost.
      ConditionExpression: isNew ? 'attribute_not_exists(pk)' : 'data_version = :read',
      UpdateExpression:
        'SET badges = list_append(if_not_exists(badges, :none), :badge), data_version = :next',
      ExpressionAttributeValues: {
        ':none': { L: [] },
        ':badge': { L: [{ S: badge }] },
        ':next': { N: next.dataVersion },
        ...(!isNew && { ':read': { N: dataVersion } }),
      },
    },
  };
  return { next, write };
}

function toProfile(userId: string, item: Item | undefined): Profile {
  return {
    userId,
    badges: (item?.['badges']?.L ?? []).map(({ S }) => S as string),
    dataVersion: item?.['data_version']?.N ?? '0',
  };
}

function keyOf(userId: string): string {
  return `player:${userId}`;
}
