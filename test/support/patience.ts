import { type Answer, lambdaContext } from './requests.ts';

/** How long before the end of a request's time a patient service (below) stops working on it. */
export const ANSWER_MARGIN_MS = 6000;

/**
 * Time-outs of the product's own that no busy machine reaches, for every test that is not about
 * them: a slow server is no fault there. Two of Redis' have to fit the margin.
 */
export const PATIENT = {
  BACKSTOP_ANSWER_MARGIN_MS: String(ANSWER_MARGIN_MS),
  // More than the longest request and that margin.
  BACKSTOP_LEASE_MS: '40000',
  BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '2500',
  BACKSTOP_REDIS_CONNECT_BUDGET_MS: '20000',
  BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS: '20000',
};

/** An invocation of a patient service that has so long to work. */
export const working = (forMs: number) => lambdaContext(ANSWER_MARGIN_MS + forMs);

/**
 * The answer of a request that ends at its deadline. What is to be said then has the few hundred
 * milliseconds of SILENCE_MS and RESOLVE_MS, which a busy machine may need for something else: then
 * the request ends with `late`, which is right as well, and the next one is asked.
 */
export async function inTime(
  ask: () => Promise<Answer>,
  late: 'UNAVAILABLE' | 'OUTCOME_UNKNOWN' = 'UNAVAILABLE',
): Promise<Answer> {
  for (let tries = 1; ; tries++) {
    const answer = await ask();
    if (answer.code !== late || tries === 20) return answer;
  }
}
