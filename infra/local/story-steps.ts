import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Answer, StoryClient } from './story-client.ts';

export type Facts = Readonly<Record<string, string | number | boolean | null>>;

export type Step =
  | { name: string; ok: boolean; expected: Facts; seen: Facts; note?: string }
  | { name: string; leftOut: string };

/** Takes Redis away and brings it back; answers with the reason when that cannot be done. */
export type RedisSwitch = (verb: 'stop' | 'start') => Promise<string | undefined>;

type Tell = (step: Step) => void;

const parallel = 50;
const fastPathBackMs = 10_000;

/** The promise, told step by step on a running service. */
export async function tellStory(client: StoryClient, redis: RedisSwitch, tell: Tell) {
  const coins = coinCounter(client);
  const redisIsUp = (await client.dependency('redis')) === 'up';
  await tellOneKey(client, coins, redisIsUp, tell);
  tell(await refusal('no key', { status: 400, kind: 'KEY_REQUIRED' }, { key: undefined }));
  const noToken = await refusal('no token', { status: 401 }, { token: undefined });
  tell(noToken);
  tell(await manyAtOnce(client, coins, `${parallel} in parallel, one key`));

  const reason = redisIsUp ? await redis('stop') : 'there is no Redis to stop';
  if (reason !== undefined) {
    for (const name of redisSteps) tell({ name, leftOut: reason });
    return;
  }
  try {
    await tellWithoutRedis(client, coins, tell);
  } finally {
    await redis('start');
  }
  tell(await fastPathBack(client, coins));

  async function refusal(
    name: string,
    expected: Facts,
    without: { key: undefined } | { token: undefined },
  ): Promise<Step> {
    const { answer, taken } = await coins.during(() =>
      client.spend({ amount: 1, key: newKey(), ...without }),
    );
    const { status, kind } = answer;
    // Without a token the gateway's authorizer answers, in words of its own.
    const seen = 'kind' in expected ? { status, kind } : { status };
    return step(name, { ...expected, coinsTaken: 0 }, { ...seen, coinsTaken: taken });
  }
}

const redisSteps = [
  'Redis stopped: a fresh key',
  'Redis stopped: the same again',
  `Redis stopped: ${parallel} in parallel, one key`,
  'Redis started: the fast path is back',
] as const;

async function tellOneKey(client: StoryClient, coins: Coins, redisIsUp: boolean, tell: Tell) {
  const key = newKey();
  const first = await coins.during(() => client.spend({ amount: 1, key }));
  tell(
    step(
      'send',
      { ...fresh, coinsTaken: 1 },
      { ...outline(first.answer), coinsTaken: first.taken },
    ),
  );
  if (!redisIsUp) {
    tell({ name: 'replay', leftOut: 'without Redis no response is stored' });
    tell({ name: 'reuse with another body', leftOut: 'without Redis no fingerprint is stored' });
    return;
  }
  const replay = await coins.during(() => client.spend({ amount: 1, key }));
  tell(
    step(
      'replay',
      { status: 200, kind: 'replayed', sameBytes: true, coinsTaken: 0 },
      {
        ...outline(replay.answer),
        sameBytes: replay.answer.text === first.answer.text,
        coinsTaken: replay.taken,
      },
    ),
  );
  const reuse = await coins.during(() => client.spend({ amount: 2, key }));
  tell(
    step(
      'reuse with another body',
      { status: 422, kind: 'KEY_REUSED', coinsTaken: 0 },
      { ...outline(reuse.answer), coinsTaken: reuse.taken },
    ),
  );
}

async function manyAtOnce(client: StoryClient, coins: Coins, name: string): Promise<Step> {
  const key = newKey();
  const { answer: answers, taken } = await coins.during(() =>
    Promise.all(Array.from({ length: parallel }, () => client.spend({ amount: 1, key }))),
  );
  const count = Map.groupBy(answers, ({ kind }) => kind);
  const allowed = ['fresh', 'replayed', 'ABORTED', 'ALREADY_EXISTS'];
  const others = answers.filter(({ kind }) => !allowed.includes(kind)).length;
  const bodies = new Set(answers.filter(({ status }) => status === 200).map(({ text }) => text));
  return {
    ...step(
      name,
      { fresh: 1, otherThanReplayOrConflict: 0, differentBodies: 1, coinsTaken: 1 },
      {
        fresh: count.get('fresh')?.length ?? 0,
        otherThanReplayOrConflict: others,
        differentBodies: bodies.size,
        coinsTaken: taken,
      },
    ),
    note: [...count].map(([kind, those]) => `${those.length} ${kind}`).join(', '),
  };
}

async function tellWithoutRedis(client: StoryClient, coins: Coins, tell: Tell) {
  const [freshName, againName, manyName] = redisSteps;
  const key = newKey();
  const first = await coins.during(() => client.spend({ amount: 1, key }));
  tell(
    step(
      freshName,
      { ...fresh, coinsTaken: 1 },
      { ...outline(first.answer), coinsTaken: first.taken },
    ),
  );
  const again = await coins.during(() => client.spend({ amount: 1, key }));
  tell(
    step(
      againName,
      {
        status: 409,
        kind: 'ALREADY_EXISTS',
        retryAfter: null,
        link: '</players/me>; rel="related"',
        coinsTaken: 0,
      },
      {
        ...outline(again.answer),
        retryAfter: again.answer.headers.get('retry-after'),
        link: again.answer.headers.get('link'),
        coinsTaken: again.taken,
      },
    ),
  );
  tell(await manyAtOnce(client, coins, manyName));
}

/** A cool-down may keep the service off Redis for a while after it is back: hence fresh keys. */
async function fastPathBack(client: StoryClient, coins: Coins): Promise<Step> {
  const started = Date.now();
  let sent = 0;
  let last = { status: 0, kind: 'nothing' };
  const { taken } = await coins.during(async () => {
    while (last.kind !== 'replayed' && Date.now() - started < fastPathBackMs) {
      const key = newKey();
      await client.spend({ amount: 1, key });
      last = outline(await client.spend({ amount: 1, key }));
      sent++;
      if (last.kind !== 'replayed') await delay(100);
    }
  });
  return {
    ...step(
      redisSteps[3],
      { status: 200, kind: 'replayed', takenOncePerKey: true },
      { ...last, takenOncePerKey: taken === sent },
    ),
    note: `after ${Date.now() - started} ms, with key number ${sent}`,
  };
}

const fresh = { status: 200, kind: 'fresh' };

type Coins = {
  during<T>(work: () => Promise<T>): Promise<{ answer: T; taken: number }>;
};

function coinCounter(client: StoryClient): Coins {
  return {
    during: async (work) => {
      const before = await client.coins();
      const answer = await work();
      return { answer, taken: before - (await client.coins()) };
    },
  };
}

function outline({ status, kind }: Answer): { status: number; kind: string } {
  return { status, kind };
}

function step(name: string, expected: Facts, seen: Facts) {
  return { name, ok: isDeepStrictEqual(expected, seen), expected, seen };
}

function newKey(): string {
  return `story-${randomUUID()}`;
}
