/**
 * What Backstop promises, as steps on a running service: `npm run story` reports them (run-story.ts), and
 * test/local/service.test.ts has a test for each.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { sendCommand } from '../../infra/local/control-client.ts';
import { localToken } from '../../infra/local/token.ts';

export interface TargetService {
  readonly url: string;
  /** The socket that stops and starts its Redis; undefined where it is not ours. */
  readonly control: string | undefined;
}

export type Facts = Readonly<Record<string, string | number | boolean | null>>;

export type StepResult =
  | { name: string; ok: boolean; expected: Facts; seen: Facts; note?: string }
  | { name: string; leftOut: string };

interface Step {
  readonly name: string;
  /** What Redis has to be for it; absent: either. */
  readonly redis?: 'up' | 'stopped' | 'started again';
  readonly expected: Facts;
  see(caller: Caller): Promise<Facts>;
}

/** Spends alice's coins, and remembers what the next step asks about. */
interface Caller {
  readonly url: string;
  key: string;
  firstBody: string;
  last: Answer;
  note?: string;
}

interface Answer {
  readonly status: number;
  /** What it means: a player (`fresh` or `replayed`), the problem's code, or what else came. */
  readonly kind: string;
  readonly headers: Headers;
  readonly body: string;
}

const PARALLEL = 50;
const CACHE_BACK_WITHIN_MS = 10_000;
const FRESH = { status: 200, kind: 'fresh', coinsTaken: 1 };
const ONE_OF_MANY = { fresh: 1, neitherReplayNorConflict: 0, differentBodies: 1, coinsTaken: 1 };

export const STORY: readonly Step[] = [
  { name: 'send', expected: FRESH, see: sendFresh },
  {
    name: 'replay',
    redis: 'up',
    expected: { status: 200, kind: 'replayed', coinsTaken: 0, sameBytes: true },
    see: async (caller) => {
      const seen = await spend(caller);
      return { ...seen, sameBytes: caller.last.body === caller.firstBody };
    },
  },
  {
    name: 'reuse with another body',
    redis: 'up',
    expected: { status: 422, kind: 'KEY_REUSED', coinsTaken: 0 },
    see: (caller) => spend(caller, { amount: 2 }),
  },
  {
    name: 'no key',
    expected: { status: 400, kind: 'KEY_REQUIRED', coinsTaken: 0 },
    see: (caller) => spend(caller, { key: undefined }),
  },
  {
    name: 'no token',
    // The gateway's authorizer answers, in words of its own.
    expected: { status: 401, coinsTaken: 0 },
    see: async (caller) => {
      const { coinsTaken = null } = await spend(caller, { token: undefined });
      return { status: caller.last.status, coinsTaken };
    },
  },
  { name: `${PARALLEL} in parallel, one key`, expected: ONE_OF_MANY, see: sendManyAtOnce },
  { name: 'Redis stopped: a fresh key', redis: 'stopped', expected: FRESH, see: sendFresh },
  {
    name: 'Redis stopped: the same again',
    redis: 'stopped',
    expected: {
      ...{ status: 409, kind: 'ALREADY_EXISTS', coinsTaken: 0 },
      ...{ retryAfter: null, link: '</players/me>; rel="related"' },
    },
    see: async (caller) => {
      const seen = await spend(caller);
      const { headers } = caller.last;
      return { ...seen, retryAfter: headers.get('retry-after'), link: headers.get('link') };
    },
  },
  {
    name: `Redis stopped: ${PARALLEL} in parallel, one key`,
    redis: 'stopped',
    expected: ONE_OF_MANY,
    see: sendManyAtOnce,
  },
  {
    name: 'Redis started: the cache is back',
    redis: 'started again',
    expected: { status: 200, kind: 'replayed', takenOncePerKey: true },
    see: waitForReplay,
  },
];

/** Runs the steps in order, and brings Redis back in the end. */
export async function tellStory(
  { url, control }: TargetService,
  report: (result: StepResult) => void,
): Promise<void> {
  const caller = newCaller(url);
  const health: unknown = await (await fetch(`${url}/health`)).json();
  const hasRedis = Object(health).dependencies?.redis === 'up';
  let isStopped = false;
  const stopOrStart = async (stop: boolean) => {
    if (control === undefined || stop === isStopped) return;
    await sendCommand(control, `${stop ? 'stop' : 'start'} redis`);
    isStopped = stop;
  };
  try {
    for (const { name, redis, expected, see } of STORY) {
      const leftOut = whyLeftOut(redis, hasRedis, control);
      if (leftOut !== undefined) {
        report({ name, leftOut });
        continue;
      }
      if (redis !== undefined) await stopOrStart(redis === 'stopped');
      delete caller.note;
      const seen = await see(caller);
      const { note } = caller;
      const ok = isDeepStrictEqual(seen, expected);
      report({ name, ok, expected, seen, ...(note !== undefined && { note }) });
    }
  } finally {
    await stopOrStart(false);
  }
}

function whyLeftOut(redis: Step['redis'], hasRedis: boolean, control: string | undefined) {
  if (redis === undefined) return undefined;
  if (!hasRedis) return 'the service has no Redis';
  if (redis === 'up' || control !== undefined) return undefined;
  return 'the service was not started from this folder';
}

function newCaller(url: string): Caller {
  const last = { status: 0, kind: 'nothing', headers: new Headers(), body: '' };
  return { url, key: '', firstBody: '', last };
}

async function sendFresh(caller: Caller): Promise<Facts> {
  caller.key = `story-${randomUUID()}`;
  const seen = await spend(caller);
  caller.firstBody = caller.last.body;
  return seen;
}

async function sendManyAtOnce(caller: Caller): Promise<Facts> {
  const key = `story-${randomUUID()}`;
  const before = await coinsOf(caller);
  const answers = await Promise.all(Array.from({ length: PARALLEL }, () => post(caller, { key })));
  const byKind = Map.groupBy(answers, ({ kind }) => kind);
  const expected = ['fresh', 'replayed', 'ABORTED', 'ALREADY_EXISTS'];
  const bodies = answers.filter(({ status }) => status === 200).map(({ body }) => body);
  caller.note = [...byKind].map(([kind, those]) => `${those.length} ${kind}`).join(', ');
  return {
    fresh: byKind.get('fresh')?.length ?? 0,
    neitherReplayNorConflict: answers.filter(({ kind }) => !expected.includes(kind)).length,
    differentBodies: new Set(bodies).size,
    coinsTaken: before - (await coinsOf(caller)),
  };
}

/** A cool-down may keep the service off Redis for a while after it is back: hence fresh keys. */
async function waitForReplay(caller: Caller): Promise<Facts> {
  const before = await coinsOf(caller);
  const startMs = performance.now();
  const pastMs = () => Math.round(performance.now() - startMs);
  let sent = 0;
  do {
    if (sent++ > 0) await delay(100);
    await sendFresh(caller);
    await spend(caller);
  } while (caller.last.kind !== 'replayed' && pastMs() < CACHE_BACK_WITHIN_MS);
  caller.note = `after ${pastMs()} ms, with key number ${sent}`;
  const { status, kind } = caller.last;
  return { status, kind, takenOncePerKey: before - (await coinsOf(caller)) === sent };
}

interface Spend {
  readonly amount?: number;
  /** Undefined: the header is not sent. */
  readonly key?: string | undefined;
  readonly token?: string | undefined;
}

/** Sends once; without `given` the last key again. */
async function spend(caller: Caller, given: Spend = {}): Promise<Facts> {
  const before = await coinsOf(caller);
  caller.last = await post(caller, { key: caller.key, ...given });
  const { status, kind } = caller.last;
  return { status, kind, coinsTaken: before - (await coinsOf(caller)) };
}

async function post({ url }: Caller, given: Spend): Promise<Answer> {
  const { amount = 1, key, token } = { token: localToken('alice'), ...given };
  const response = await fetch(`${url}/players/me/coins/spend`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(key !== undefined && { 'idempotency-key': key }),
    },
    body: JSON.stringify({ amount }),
    signal: AbortSignal.timeout(30_000),
  });
  const { status, headers } = response;
  const body = await response.text();
  return { status, headers, body, kind: kindOf(status, headers, body) };
}

async function coinsOf({ url }: Caller): Promise<number> {
  const headers = { authorization: `Bearer ${localToken('alice')}` };
  const response = await fetch(`${url}/players/me`, { headers });
  const body = await response.text();
  if (!isPlayer(body)) throw new Error(`GET /players/me: ${response.status} ${body}`);
  return JSON.parse(body).coins;
}

/** Looks at the body: serverless-offline turns a handler that throws into 200 with an error text. */
function kindOf(status: number, headers: Headers, body: string): string {
  if (status === 200 && isPlayer(body)) {
    return headers.get('idempotency-replayed') === 'true' ? 'replayed' : 'fresh';
  }
  if (headers.get('content-type')?.startsWith('application/problem+json')) {
    const problem = parsed(body);
    if (typeof problem['code'] === 'string' && problem['status'] === status) return problem['code'];
  }
  return `${status} ${body.slice(0, 80)}`;
}

function isPlayer(body: string): boolean {
  const { userId, coins, dataVersion } = parsed(body);
  return typeof userId === 'string' && typeof coins === 'number' && typeof dataVersion === 'string';
}

function parsed(body: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(body));
  } catch {
    return {};
  }
}
