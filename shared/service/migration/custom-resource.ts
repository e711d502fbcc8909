/**
 * The answer to CloudFormation, which waits up to an hour for one that does not come.
 * https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref-responses.html
 */
import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod/mini';

const REQUEST = z.object({
  RequestType: z.enum(['Create', 'Update', 'Delete']),
  ResponseURL: z.url(),
  StackId: z.string(),
  RequestId: z.string(),
  LogicalResourceId: z.string(),
  PhysicalResourceId: z.optional(z.string()),
});

export type CustomResourceRequest = z.infer<typeof REQUEST>;

/** @returns undefined for whatever is not from CloudFormation, as an invocation by hand. */
export function readCustomResourceRequest(event: unknown): CustomResourceRequest | undefined {
  const parsed = REQUEST.safeParse(event);
  return parsed.success ? parsed.data : undefined;
}

/** Always the same, so that no update is a replacement, which would end in a Delete. */
const PHYSICAL_ID = 'backstop-migrations';

/** All of the answer may have 4096 bytes; a character has four at the most. */
const REASON_CHARACTERS_MAX = 700;

const TRIES_MAX = 4;
const TRY_TIMEOUT_MS = 5000;

/**
 * Puts the answer where CloudFormation asked for it.
 *
 * @param failure the reason; undefined: it went well.
 * @throws Error when it could not be put there; Lambda then calls the function again.
 */
export async function answerCloudFormation(
  request: CustomResourceRequest,
  failure?: string,
): Promise<void> {
  const { StackId, RequestId, LogicalResourceId } = request;
  const answer = {
    Status: failure === undefined ? 'SUCCESS' : 'FAILED',
    Reason: failure?.slice(0, REASON_CHARACTERS_MAX),
    PhysicalResourceId: request.PhysicalResourceId ?? PHYSICAL_ID,
    StackId,
    RequestId,
    LogicalResourceId,
  };
  // As bytes: a string would bring a Content-Type, and the URL is signed for none.
  const body = new TextEncoder().encode(JSON.stringify(answer));
  for (let tries = 1; ; tries++) {
    try {
      return await put(request.ResponseURL, body);
    } catch (error) {
      if (tries === TRIES_MAX) throw error;
      await sleep(250 * 2 ** tries);
    }
  }
}

async function put(url: string, body: Uint8Array<ArrayBuffer>): Promise<void> {
  const signal = AbortSignal.timeout(TRY_TIMEOUT_MS);
  const response = await fetch(url, { method: 'PUT', body, signal });
  // Without the query, which is the signature.
  const where = new URL(url).host;
  if (!response.ok) throw new Error(`${where} answered ${response.status} to the answer`);
}
