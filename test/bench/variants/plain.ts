/**
 * The spending of coins with nothing to protect it, inside the middlewares that the
 * product's own function has: what the others are measured against, and what
 * Powertools is put around.
 */
import middy, { type MiddlewareObj } from '@middy/core';
import httpJsonBodyParser from '@middy/http-json-body-parser';
import pg from 'pg';
import * as z from 'zod/mini';
import { readPrincipal } from '../../../shared/http/principal.ts';
import type { HttpResponse } from '../../../shared/http/problems.ts';
import { type HttpEvent, type HttpRequest, readRequest } from '../../../shared/http/request.ts';
import { problemResponses } from '../../../shared/lambda/problem-responses.ts';
import { spellContentType, validateBody } from '../../../shared/service/body.ts';
import type { Handler } from '../../../shared/service/handlers.ts';
import { createLogger } from '../../../shared/service/logger.ts';
import { createMeter } from '../../../shared/service/metrics.ts';
import { processEnvironment, readSettings } from '../../../shared/service/settings.ts';
import { storableText } from '../../../shared/service/text.ts';

// biome-ignore lint/suspicious/noExplicitAny: fits any stack.
type Step = MiddlewareObj<any, any, any, any>;

const body = z.strictObject({
  amount: z.int().check(z.minimum(1), z.maximum(Number.MAX_SAFE_INTEGER)),
  reason: z.optional(storableText(200)),
});

const { requests, database } = readSettings('postgres', processEnvironment());
const logger = createLogger('backstop');
const meter = createMeter('backstop', 'bench');
const pool = new pg.Pool({ connectionString: database.url, max: 1 });
pool.on('error', () => {});

/** @param protection goes between the checks of the request and its work. */
export function plainHandler(protection: readonly Step[] = []): Handler {
  const stack = middy({ timeoutEarlyInMillis: 0 })
    .use(problemResponses({ problemBaseUrl: requests.problemBaseUrl }) as Step)
    .use(reading)
    .use(spellContentType() as Step)
    .use(httpJsonBodyParser() as Step)
    .use(validateBody(body) as Step);
  for (const step of protection) stack.use(step);
  const handler = stack.handler(spend as never) as unknown as Handler;
  return async (event, context) => {
    const response = await handler(event, context);
    // As a function of the product: one line and one metric for each request, replays too.
    logger.info('request', { function: 'spend-coins', layer: 'handler', outcome: 'committed' });
    meter.outcome('handler', 'committed');
    return response;
  };
}

const reading: Step = {
  before: ({ event, context }) => {
    context.http = readRequest(event);
    context.principal = readPrincipal(event, {});
  },
};

interface Input {
  readonly http: HttpRequest;
  readonly principal: string;
}

async function spend(
  event: HttpEvent & { body: z.infer<typeof body> },
  { principal }: Input,
): Promise<HttpResponse> {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const { rows } = await client.query(
      `UPDATE players SET coins = coins - $2, data_version = data_version + 1
        WHERE user_id = $1 AND coins >= $2 RETURNING user_id, coins, data_version`,
      [principal, event.body.amount],
    );
    await client.query('COMMIT');
    const player = {
      userId: rows[0].user_id,
      coins: Number(rows[0].coins),
      dataVersion: rows[0].data_version,
    };
    return {
      statusCode: 200,
      headers: { 'content-type': 'application/json', etag: `"${player.dataVersion}"` },
      body: JSON.stringify(player),
    };
  } finally {
    client.release();
  }
}
