/**
 * What Backstop promises, as steps on a running service: `npm run story` reports them (run-story.ts), and
 * test/local/service.test.ts has a test for each.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { sendCommand } from '../../infra/local/control-client.ts';
import { localToken } from '../../infra/local/token.ts';

type Facts = Readonly<Record<string, string | number | boolean | null>>;

interface Step {
  readonly name: string;
  /** What Redis has to be for it; absent: either. */
  readonly redis?: 'up' | 'stopped' | 'started again';
  /** Spends alice's coins: one, with the key of the step before. */
  readonly send: {
    readonly key?: 'new' | 'none';
    readonly token?: 'none';
    readonly amount?: number;
    readonly atOnce?: number;
    readonly inTurn?: number;
  };
  /** Of the last answer, of all answers, and of the coins. */
  readonly expected: Facts;
  /** Tries again for so long: a cool-down keeps the service off Redis for a while after it is back. */
  readonly withinMs?: number;
}

const PARALLEL = 50;
const FRESH = { status: 200, kind: 'fresh', coinsTaken: 1 };
const MANY = { key: 'new', atOnce: PARALLEL } as const;
const ONE_OF_MANY = { fresh: 1, neitherReplayNorConflict: 0, differentBodies: 1, coinsTaken: 1 };
const CONFLICT = { status: 409, kind: 'ALREADY_EXISTS', coinsTaken: 0 };

// biome-ignore format: a step is a line, or two
export const STORY: readonly Step[] = [
  { name: 'send', send: { key: 'new' }, expected: FRESH },
  { name: 'replay', redis: 'up', send: {},
    expected: { status: 200, kind: 'replayed', sameBytes: true, coinsTaken: 0 } },
  { name: 'reuse with another body', redis: 'up', send: { amount: 2 },
    expected: { status: 422, kind: 'KEY_REUSED', coinsTaken: 0 } },
  { name: 'no key', send: { key: 'none' },
    expected: { status: 400, kind: 'KEY_REQUIRED', coinsTaken: 0 } },
  // The gateway's authorizer answers, in words of its own.
  { name: 'no token', send: { token: 'none' }, expected: { status: 401, coinsTaken: 0 } },
  { name: `${PARALLEL} in parallel, one key`, send: MANY, expected: ONE_OF_MANY },
  { name: 'Redis stopped: a fresh key', redis: 'stopped', send: { key: 'new' }, expected: FRESH },
  { name: 'Redis stopped: the same again', redis: 'stopped', send: {},
    expected: { ...CONFLICT, retryAfter: null, link: '</players/me>; rel="related"' } },
  { name: `Redis stopped: ${PARALLEL} in parallel, one key`, redis: 'stopped', send: MANY,
    expected: ONE_OF_MANY },
  { name: 'Redis started: the cache is back', redis: 'started again',
    send: { key: 'new', inTurn: 2 }, withinMs: 10_000,
    expected: { status: 200, kind: 'replayed', coinsTaken: 1 } },
];

export type StepResult =
  | { name: string; ok: boolean; expected: Facts; seen: Facts; note: string }
  | { name: string; leftOut: string };

export interface TargetService {
  readonly url: string;
  /** The socket that stops and starts its Redis; undefined where it is not ours. */
  readonly control: string | undefined;
}

/** Runs the steps in order, and brings Redis back in the end. */
export async function tellStory(
  { url, control }: TargetService,
  report: (result: StepResult) => void,
): Promise<void> {
  const caller = { url, key: '', firstBody: '' };
  const hasRedis = /"redis":\s*"up"/.test(await (await fetch(`${url}/health`)).text());
  let isStopped = false;
  const stopOrStart = async (stop: boolean) => {
    if (control === undefined || stop === isStopped) return;
    await sendCommand(control, `${stop ? 'stop' : 'start'} redis`);
    isStopped = stop;
  };
  try {
    for (const step of STORY) {
      const { name, redis } = step;
      if (redis !== undefined && !hasRedis) {
        report({ name, leftOut: 'the service has no Redis' });
      } else if (redis !== undefined && redis !== 'up' && control === undefined) {
        report({ name, leftOut: 'the service was not started from this folder' });
      } else {
        if (redis !== undefined) await stopOrStart(redis === 'stopped');
        report(await runStep(step, caller));
      }
    }
  } finally {
    await stopOrStart(false);
  }
}

interface Caller {
  readonly url: string;
  key: string;
  /** The first answer to this key. */
  firstBody: string;
}

async function runStep({ name, send, expected, withinMs = 0 }: Step, caller: Caller) {
  const startMs = performance.now();
  for (let tries = 1; ; tries++) {
    const { note, ...facts } = await spend(caller, send);
    const compared = Object.entries(facts).filter(([fact]) => fact in expected);
    const seen = Object.fromEntries(compared);
    const ok = isDeepStrictEqual(seen, expected);
    const pastMs = Math.round(performance.now() - startMs);
    if (ok || pastMs > withinMs) {
      const triedNote = `${note}, after ${pastMs} ms, with key number ${tries}`;
      return { name, ok, expected, seen, note: withinMs > 0 ? triedNote : note };
    }
    await delay(100);
  }
}

async function spend(caller: Caller, { atOnce = 1, inTurn = 1, ...send }: Step['send']) {
  if (send.key === 'new') caller.key = `story-${randomUUID()}`;
  const before = await coinsOf(caller);
  const answers: Answer[] = [];
  for (let turn = 1; turn <= inTurn; turn++) {
    const sent = Array.from({ length: atOnce }, () => post(caller, send));
    answers.push(...(await Promise.all(sent)));
  }
  if (send.key === 'new') caller.firstBody = answers[0]?.body ?? '';
  const last = answers.at(-1);
  const byKind = Map.groupBy(answers, ({ kind }) => kind);
  const conflicts = ['fresh', 'replayed', 'ABORTED', 'ALREADY_EXISTS'];
  return {
    status: last?.status ?? 0,
    kind: last?.kind ?? '',
    retryAfter: last?.headers.get('retry-after') ?? null,
    link: last?.headers.get('link') ?? null,
    sameBytes: last?.body === caller.firstBody,
    fresh: byKind.get('fresh')?.length ?? 0,
    neitherReplayNorConflict: answers.filter(({ kind }) => !conflicts.includes(kind)).length,
    differentBodies: new Set(answers.filter((one) => one.status === 200).map((one) => one.body))
      .size,
    coinsTaken: before - (await coinsOf(caller)),
    note: [...byKind].map(([kind, those]) => `${those.length} ${kind}`).join(', '),
  };
}

interface Answer {
  readonly status: number;
  /** What it means: a player (`fresh` or `replayed`), the problem's code, or what else came. */
  readonly kind: string;
  readonly headers: Headers;
  readonly body: string;
}

async function post({ url, key }: Caller, send: Step['send']): Promise<Answer> {
  const response = await fetch(`${url}/players/me/coins/spend`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(send.token !== 'none' && { authorization: `Bearer ${localToken('alice')}` }),
      ...(send.key !== 'none' && { 'idempotency-key': key }),
    },
    body: JSON.stringify({ amount: send.amount ?? 1 }),
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
    const { code, status: told } = parsed(body);
    if (typeof code === 'string' && told === status) return code;
  }
  return `${status} ${body.slice(0, 80)}`;
}

function isPlayer(body: string): boolean {
  const { userId, coins, dataVersion } = parsed(body);
  const types = [typeof userId, typeof coins, typeof dataVersion];
  return isDeepStrictEqual(types, ['string', 'number', 'string']);
}

function parsed(body: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(body));
  } catch {
    return {};
  }
}
