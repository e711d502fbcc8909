/**
 * One execution environment of Lambda: a process that loads one bundle, and handles one
 * request at a time as it is told to. What the function prints goes nowhere.
 */
import { randomUUID } from 'node:crypto';
import type { Handler } from '../../shared/service/handlers.ts';
import { httpEvent, lambdaContext } from '../support/requests.ts';

export interface RunRequest {
  readonly requests: number;
  readonly principal: string;
  /** Sent with each of them: the first is carried out, and the others are its replays. */
  readonly key?: string | undefined;
  /** For a run of requests over time: the memory is looked at after this many. */
  readonly rssEvery?: number | undefined;
}

export interface RunAnswer {
  readonly error?: string;
  readonly tookMs: readonly number[];
  /** Of this process, user and system, for all requests together. */
  readonly cpuMs: number;
  readonly rssMb: readonly number[];
  readonly replays: number;
}

const startedMs = performance.now();
const { handler } = (await import(process.argv[2] as string)) as { handler: Handler };
const importMs = performance.now() - startedMs;

async function run({ requests, principal, key, rssEvery }: RunRequest): Promise<RunAnswer> {
  const tookMs: number[] = [];
  const rssMb: number[] = [];
  let replays = 0;
  const cpuBefore = process.cpuUsage();
  for (let count = 1; count <= requests; count++) {
    const event = httpEvent({ principal, key: key ?? randomUUID(), body: { amount: 1 } });
    const startedMs = performance.now();
    const { statusCode, headers, body } = await handler(event, lambdaContext());
    tookMs.push(performance.now() - startedMs);
    if (statusCode !== 200) throw new Error(`${statusCode} ${body}`);
    if (headers?.['Idempotency-Replayed'] ?? headers?.['idempotency-replayed']) replays++;
    if (rssEvery && count % rssEvery === 0) rssMb.push(process.memoryUsage.rss() / 2 ** 20);
  }
  const { user, system } = process.cpuUsage(cpuBefore);
  return { tookMs: rssEvery ? [] : tookMs, cpuMs: (user + system) / 1000, rssMb, replays };
}

process.on('message', async (request: RunRequest) => {
  const answer = await run(request).catch((error: Error) => ({ error: error.message }));
  process.send?.(answer);
});
process.on('disconnect', () => process.exit());
process.send?.({ importMs });
