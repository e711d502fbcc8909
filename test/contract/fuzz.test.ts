/**
 * Thousands of made-up requests through the real handlers, twenty at a time. What
 * must hold of each, and of the books at the end, whatever was sent:
 * FUZZ_SEED=… FUZZ_RUNS=… repeats or extends a run.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import * as own from '../../functions/problems.ts';
import { type HttpEvent, PROBLEM_KINDS, readPrincipal, readRequest } from '../../shared/index.ts';
import { playerOf, seedPlayer } from '../support/database.ts';
import { ENTRIES } from '../support/redis.ts';
import { type Answer, newKey } from '../support/requests.ts';
import { BODY_BYTES_MAX, type FuzzedRequest, fuzzedRequest } from './fuzz-requests.ts';
import { type Fixture, openFixture, sendEvent } from './support.ts';

const SEED = Number(process.env['FUZZ_SEED'] ?? 20_261_130);
const RUNS = Number(process.env['FUZZ_RUNS'] ?? 10_000);
const AT_ONCE = 20;
/** Enough to go round, and few enough that some players run out. */
const COINS = Math.ceil(RUNS / 5);

let fixture: Fixture;
beforeAll(async () => {
  fixture = await openFixture({
    BACKSTOP_POOL_MAX: '10',
    BACKSTOP_BODY_BYTES_MAX: String(BODY_BYTES_MAX),
    // On a busy machine a slow start is no fault of the request's.
    BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS: '20000',
  });
});
afterAll(() => fixture.close());

test(`${RUNS} made-up requests are each answered within the contract, seed ${SEED}`, {
  timeout: 600_000 + RUNS * 20,
}, async () => {
  // The servers are shared with other tests; these names are this run's alone.
  const run = newKey();
  const players = ['1', '2', ':', '%3A', '😀', '\'"', '{,}', '\\'].map((end) => `${run}${end}`);
  for (const player of players) await seedPlayer(fixture.db, player, COINS);
  const requests = fuzzedRequests([...players, `${run}-nobody`], players);

  const books = openBooks(players);
  const startMs = performance.now();
  await inParallel(requests, async (request, at) => {
    const sentMs = performance.now();
    const answer = await answerTo(request);
    const tookMs = performance.now() - sentMs;
    const complaint =
      typeof answer === 'string' ? answer : (complaintOf(answer) ?? enter(books, request, answer));
    if (complaint) books.complaints.push(`request ${at}: ${complaint}\n${show(request)}`);
    if (tookMs > 60_000) books.complaints.push(`request ${at}: took ${tookMs} ms`);
  });
  const seconds = ((performance.now() - startMs) / 1000).toFixed(1);
  const seen = [...books.seen].sort(([, a], [, b]) => b - a).map(([what, n]) => `${n} ${what}`);
  console.log(
    `fuzz: seed ${SEED}, ${requests.length} requests in ${seconds} s: ${seen.join(', ')}`,
  );

  expect(books.complaints.slice(0, 5)).toEqual([]);
  expect(await markerRows()).toBe(books.committed);
  for (const player of players) {
    expect({ player, ...(await playerOf(fixture.db, player)) }).toMatchObject({
      player,
      coins: books.coins.get(player),
    });
  }
  const entries = await redisEntries(run);
  expect(entries.filter((entry) => entry.state !== 'completed')).toEqual([]);
  expect(entries.length).toBeGreaterThan(0);
  expect(entries.length).toBeLessThanOrEqual(books.committed);
  if (RUNS >= 10_000) expectEverythingSeen(books);
});

/** Some are sent again: soon, while the first may still be running, or later. */
function fuzzedRequests(principals: string[], players: string[]): FuzzedRequest[] {
  const drawn = fc.sample(
    fc.record({
      request: fuzzedRequest(principals, players),
      repeats: fc.oneof(
        { weight: 18, arbitrary: fc.constant(0) },
        { weight: 1, arbitrary: fc.integer({ min: 1, max: AT_ONCE }) },
        { weight: 3, arbitrary: fc.integer({ min: AT_ONCE, max: 50 * AT_ONCE }) },
      ),
    }),
    { seed: SEED, numRuns: RUNS },
  );
  return drawn.map(({ request, repeats }, at) => drawn[at - repeats]?.request ?? request);
}

async function inParallel<T>(items: T[], work: (item: T, at: number) => Promise<void>) {
  let next = 0;
  const worker = async () => {
    for (let at = next++; at < items.length; at = next++) await work(items[at] as T, at);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

/** The answer, or what was thrown, which nothing ever may be. */
async function answerTo({ mutation, event }: FuzzedRequest): Promise<Answer | string> {
  try {
    return await sendEvent(fixture[mutation], event);
  } catch (error) {
    return `threw ${error instanceof Error ? error.stack : error}`;
  }
}

/** What is wrong with an answer by itself; undefined when it is as the contract says. */
function complaintOf({ status, code, headers, json, text }: Answer): string | undefined {
  if (code === undefined) return status === 200 ? undefined : `answered ${status}: ${text}`;
  const kind = KINDS[code as keyof typeof KINDS];
  const retryAfter = headers['retry-after'];
  const isRight =
    kind?.status === status &&
    json['status'] === status &&
    json['retryable'] === kind.retryable &&
    (kind.retryable ? /^[12]$/.test(retryAfter ?? '') : retryAfter === undefined) &&
    // Both servers are up, so whatever fails here fails for a reason of ours.
    status < 500;
  return isRight ? undefined : `answered ${status} ${text} ${JSON.stringify(headers)}`;
}

const KINDS = { ...PROBLEM_KINDS, ...own };

/** What the answers say has happened; the stores must say the same. */
interface Books {
  readonly seen: Map<string, number>;
  readonly coins: Map<string, number>;
  readonly complaints: string[];
  committed: number;
}

function openBooks(players: string[]): Books {
  const coins = new Map(players.map((player) => [player, COINS]));
  return { seen: new Map(), coins, complaints: [], committed: 0 };
}

function enter(
  books: Books,
  { mutation, event }: FuzzedRequest,
  answer: Answer,
): string | undefined {
  const isReplay = answer.headers['idempotency-replayed'] === 'true';
  const what = `${answer.code ?? answer.status}${isReplay ? ' replayed' : ''}`;
  books.seen.set(what, (books.seen.get(what) ?? 0) + 1);
  if (isReplay || (answer.status !== 200 && answer.code !== 'INSUFFICIENT_COINS')) return undefined;
  books.committed++;
  if (answer.status !== 200) return undefined;

  const { amount, to } = bodyOf(event);
  const from = readPrincipal(event) as string;
  const add = (player: string, coins: number) =>
    books.coins.set(player, (books.coins.get(player) ?? Number.NaN) + coins);
  add(from, -amount);
  if (mutation === 'transfer') add(to, amount);
  const player = mutation === 'transfer' ? answer.json['from'] : answer.json;
  const userId = (player as { userId?: unknown }).userId;
  return userId === from ? undefined : `took ${from}'s coins and answered for ${userId}`;
}

/** As the client meant it: what was taken for valid can be read by anybody. */
function bodyOf(event: HttpEvent): { amount: number; to: string } {
  return JSON.parse(readRequest(event).body.toString('utf8'));
}

async function markerRows(): Promise<number> {
  const [row] = await fixture.db.sql<{ rows: string }>(
    'SELECT count(*) AS rows FROM player_mutation_idempotency',
  );
  return Number(row?.rows);
}

async function redisEntries(run: string): Promise<{ state: string }[]> {
  const keys = await fixture.redis.keys(`${ENTRIES}*${run}*`);
  const values = keys.length > 0 ? await fixture.redis.mget(keys) : [];
  return values.map((value) => JSON.parse(value as string));
}

/** A run that only ever meets one refusal proves nothing. */
function expectEverythingSeen({ seen }: Books): void {
  const often = Object.fromEntries([...seen].map(([what, times]) => [what, times]));
  expect(often['200']).toBeGreaterThan(500);
  expect(often['200 replayed']).toBeGreaterThan(50);
  const notHere = ['INTERNAL', 'UNAVAILABLE', 'OUTCOME_UNKNOWN', 'CONTENTION', 'ALREADY_EXISTS'];
  const expected = Object.keys(KINDS).filter((code) => !notHere.includes(code));
  expect(Object.keys(often)).toEqual(expect.arrayContaining(expected));
}

function show({ mutation, event }: FuzzedRequest): string {
  const text = JSON.stringify(event);
  return `${mutation} ${text.length > 2000 ? `${text.slice(0, 2000)}…` : text}`;
}
