/** Losing Redis costs latency and stored bodies, never correctness, and not for longer than it lasts. */
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Answer, lambdaContext, newKey, send } from '../../support/requests.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';
import {
  countKinds,
  effectsOn,
  holdPlayer,
  kindOf,
  newRequest,
  PATIENT,
  type Spender,
  type SpendRequest,
  spender,
  useServers,
  warmSpender,
} from './servers.ts';

const servers = useServers();
let request: SpendRequest;
beforeEach(async () => {
  request = await newRequest(servers);
});

/** Longer than any test, and short enough to wait for its end. */
const COOL_LONG = { BACKSTOP_REDIS_COOL_DOWN_MS: '60000' };
const COOL_BRIEFLY = { BACKSTOP_REDIS_COOL_DOWN_MS: '300' };

const stepsFailed = ({ failures }: Spender) => failures.mock.calls.map(([step]) => step);

/** Another key of the same player. */
const another = (): SpendRequest => ({ ...request, key: newKey() });

/** Until a request is replayed again: a new one each time, so that L1 holds nothing of it before. */
async function cacheBack({ spend }: Spender): Promise<void> {
  await eventually(async () => {
    const probe = await newRequest(servers);
    expect(kindOf(await send(spend, probe))).toBe('200 fresh');
    const again = await send(spend, probe);
    expect(['200 replayed', '409 ALREADY_EXISTS', '409 ABORTED']).toContain(kindOf(again));
    expect(await effectsOn(servers, probe)).toBe(1);
    return kindOf(again) === '200 replayed';
  }, 'the cache back');
}

describe('a black-holed Redis costs its budget and no more (C37)', () => {
  test('a request before the first connection is answered within the budget', async () => {
    servers.redisProxy.blackHole();
    const s = spender(servers);
    await s.service.dependencies['postgres']?.();
    const startMs = performance.now();
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    // 250 ms to connect, 100 ms to publish; all of the request's own time would be 27 s.
    expect(performance.now() - startMs).toBeLessThan(10_000);
    expect(stepsFailed(s)).toEqual(['claim', 'publish']);
    expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test('a request on a connection that stands is answered within the budget', async () => {
    const s = await warmSpender(servers);
    const touched = servers.redisProxy.count('idem:');
    servers.redisProxy.blackHole();
    const startMs = performance.now();
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    const tookMs = performance.now() - startMs;
    // 100 ms for each of the two commands.
    expect(tookMs).toBeGreaterThan(190);
    expect(tookMs).toBeLessThan(10_000);
    expect([stepsFailed(s), touched()]).toEqual([['claim', 'publish'], 2]);
    expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
    expect(await effectsOn(servers, request)).toBe(1);
  });
});

describe('the cool-down of Redis', () => {
  test('the next requests leave Redis alone after 3 failures', async () => {
    const s = await warmSpender(servers, COOL_LONG);
    servers.redisProxy.blackHole();
    await send(s.spend, request);
    await send(s.spend, another());
    const touched = servers.redisProxy.count('idem:');
    const failed = stepsFailed(s).length;
    expect(failed).toBeGreaterThanOrEqual(3);
    expect(kindOf(await send(s.spend, another()))).toBe('200 fresh');
    expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
    expect([touched(), stepsFailed(s).length]).toEqual([0, failed]);
    expect(await effectsOn(servers, request)).toBe(3);
  });

  test('one request at a time tries again while the cool-down lasts, and the others do not wait long', async () => {
    const s = await warmSpender(servers, COOL_BRIEFLY);
    servers.redisProxy.blackHole();
    for (let i = 0; i < 3; i++) await send(s.spend, another());
    const touched = servers.redisProxy.count('NX');
    const startMs = performance.now();
    const tookMs = () => performance.now() - startMs;
    // Through some cool-downs, until many requests have left Redis alone.
    for (let sent = 0; tookMs() < 1000 || sent - touched() < 10; sent++) {
      expect(kindOf(await send(s.spend, await newRequest(servers)))).toBe('200 fresh');
    }
    // At most one probe in 300 ms.
    expect(touched()).toBeLessThanOrEqual(Math.ceil(tookMs() / 300));
  });

  test('the cache is back without a restart when Redis answers again', async () => {
    const s = await warmSpender(servers, COOL_BRIEFLY);
    servers.redisProxy.blackHole();
    for (let i = 0; i < 3; i++) await send(s.spend, another());
    await servers.redisProxy.pass();
    await cacheBack(s);
  });

  test('the cache is back also when the old connection stays silently dead, as after a failover', async () => {
    const s = await warmSpender(servers, COOL_BRIEFLY);
    servers.redisProxy.freezeOpen();
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    await cacheBack(s);
  });

  test('the cache is back also after a crash of Redis, and nothing goes to the console', async () => {
    const complaint = vi.spyOn(console, 'error');
    onTestFinished(() => complaint.mockRestore());
    const s = await warmSpender(servers, COOL_BRIEFLY);
    await servers.redis.crash();
    for (let i = 0; i < 3; i++) expect(kindOf(await send(s.spend, another()))).toBe('200 fresh');
    await servers.redis.restart();
    await cacheBack(s);
    expect(complaint).not.toHaveBeenCalled();
  });
});

test('a CLIENT KILL between invocations is 200 each time, and the cache is soon back (C38)', async () => {
  const s = await warmSpender(servers);
  for (let round = 0; round < 5; round++) {
    await eventually(
      async () => Number(await servers.redis.raw.call('CLIENT', 'KILL', 'TYPE', 'normal')) > 0,
      'a connection to kill',
    );
    const each = another();
    expect(kindOf(await send(s.spend, each))).toBe('200 fresh');
    expect(['200 replayed', '409 ALREADY_EXISTS']).toContain(kindOf(await send(s.spend, each)));
  }
  expect(await effectsOn(servers, request)).toBe(5);
  await cacheBack(s);
});

test('the client connects anew when a primary became a replica, to whatever the endpoint now means', async () => {
  const s = await warmSpender(servers, COOL_BRIEFLY);
  const { traffic } = servers.redisProxy;
  const before = traffic.connections;
  onTestFinished(async () => void (await servers.redis.raw.replicaof('NO', 'ONE')));
  await servers.redis.raw.replicaof('127.0.0.1', 1);
  expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
  expect(stepsFailed(s)).toContain('claim');
  await eventually(async () => traffic.connections > before, 'a new connection');
  await servers.redis.raw.replicaof('NO', 'ONE');
  await cacheBack(s);
  expect(await effectsOn(servers, request)).toBe(1);
});

test('a connection lost between invocations costs neither the request nor its stored body', async () => {
  const s = await warmSpender(servers);
  for (let round = 0; round < 3; round++) {
    servers.redisProxy.reset();
    const each = another();
    expect(kindOf(await send(s.spend, each))).toBe('200 fresh');
    await cacheBack(s);
    expect(kindOf(await send(s.spend, each))).toBe('200 replayed');
  }
});

describe('Redis is down, alone or with Postgres (C45)', () => {
  test('a request while Redis is down has its effect, and the marker answers its repeat', async () => {
    await servers.redis.crash();
    for (const s of [spender(servers), await warmSpenderOfPostgres()]) {
      const each = await newRequest(servers);
      expect(kindOf(await send(s.spend, each))).toBe('200 fresh');
      const again = await send(s.spend, each);
      expect(kindOf(again)).toBe('409 ALREADY_EXISTS');
      expect(again.headers['link']).toBe('</players/me>; rel="related"');
      expect(again.headers['retry-after']).toBeUndefined();
      expect(await effectsOn(servers, each)).toBe(1);
    }
  });

  test.each(['cold', 'warm'])('a %s service without both answers 503', async (start) => {
    const s = start === 'cold' ? spender(servers) : await warmSpender(servers);
    await Promise.all([servers.redis.crash(), servers.postgresProxy.refuse()]);
    const down = await send(s.spend, request);
    expect([kindOf(down), down.headers['retry-after']]).toEqual(['503 UNAVAILABLE', '1']);
    expect(down.json['retryable']).toBe(true);
    expect(await effectsOn(servers, request)).toBe(0);
    await servers.postgresProxy.pass();
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(await effectsOn(servers, request)).toBe(1);
  });

  async function warmSpenderOfPostgres(): Promise<Spender> {
    const s = spender(servers);
    await s.service.dependencies['postgres']?.();
    return s;
  }
});

describe('a publish that fails after COMMIT (C08)', () => {
  test('the first answer is 200 and the retry is ALREADY_EXISTS when Redis dies in between', async () => {
    const s = await warmSpender(servers);
    const committed = servers.postgresProxy.holdAnswer('COMMIT\0');
    const answer = send(s.spend, request);
    await committed;
    await servers.redis.crash();
    await servers.postgresProxy.pass();
    const fresh = await answer;
    expect(kindOf(fresh)).toBe('200 fresh');
    expect(fresh.headers['idempotency-expires']).toBeDefined();
    expect(stepsFailed(s)).toContain('publish');
    await servers.redis.restart();
    for (const { spend } of [s, spender(servers)]) expectUsedUp(await send(spend, request));
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test('the publish is sent again when its connection is cut, and the retry replays', async () => {
    const s = await warmSpender(servers);
    const injected = servers.redisProxy.dropBefore('completed');
    const fresh = await send(s.spend, request);
    await injected;
    expect(kindOf(fresh)).toBe('200 fresh');
    const replay = await send(s.spend, request);
    expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test('the key is busy while the pending entry lasts, and then used up, when Redis is silent just then', async () => {
    const s = await warmSpender(servers);
    const held = servers.redisProxy.holdAt('completed');
    const fresh = await send(s.spend, request, lambdaContext(4000));
    await held;
    expect(kindOf(fresh)).toBe('200 fresh');
    servers.redisProxy.reset(); // What was held is lost.
    await servers.redisProxy.pass();
    expect((await servers.redis.entry()).json).toMatchObject({ state: 'pending' });
    const other = spender(servers);
    const last = await eventually(async () => {
      const again = await send(other.spend, request);
      if (again.code === 'ABORTED') expect(['1', '2']).toContain(again.headers['retry-after']);
      return again.code !== 'ABORTED' && again;
    }, 'the pending entry gone');
    expectUsedUp(last);
    expect(await effectsOn(servers, request)).toBe(1);
  });

  function expectUsedUp(answer: Answer): void {
    expect(kindOf(answer)).toBe('409 ALREADY_EXISTS');
    expect(answer.headers['link']).toBe('</players/me>; rel="related"');
    expect(answer.headers['retry-after']).toBeUndefined();
    expect(answer.json).toMatchObject({ state: '/players/me', retryable: false });
  }
});

describe('50 requests in parallel with one key (C16)', () => {
  const all = (s: Spender) => Promise.all(Array.from({ length: 50 }, () => send(s.spend, request)));

  test('one runs with Redis from a cold start', async () => {
    const warnings: string[] = [];
    const onWarning = (warning: Error) => warnings.push(String(warning));
    process.on('warning', onWarning);
    onTestFinished(() => void process.off('warning', onWarning));
    const answers = await all(spender(servers, PATIENT));
    const {
      '200 fresh': fresh,
      '200 replayed': _,
      '409 ABORTED': __,
      ...others
    } = countKinds(answers);
    expect([fresh, others]).toEqual([1, {}]);
    expect(
      new Set(answers.filter(({ status }) => status === 200).map(({ text }) => text)).size,
    ).toBe(1);
    expect(await effectsOn(servers, request)).toBe(1);
    expect(warnings).toEqual([]);
  });

  test('one runs without Redis', async () => {
    await servers.redis.crash();
    const answers = await all(spender(servers));
    expect(countKinds(answers)).toEqual({ '200 fresh': 1, '409 ALREADY_EXISTS': 49 });
    expect(await effectsOn(servers, request)).toBe(1);
  });

  test.each(['crash', 'black hole', 'reset'])('one runs with a %s meanwhile', async (fault) => {
    // On a busy machine commands that time out would open the breaker before the fault strikes.
    const s = await warmSpender(servers, { ...PATIENT, BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '1000' });
    const letGo = await holdPlayer(servers, request);
    const half = () => Array.from({ length: 25 }, () => send(s.spend, request));
    const before = half();
    await seenBlocked(servers.db);
    const touched = servers.redisProxy.count('NX');
    servers.redisProxy.delay({ toServer: 30 }); // So that some are on their way when it strikes.
    const during = half();
    await eventually(async () => touched() > 0, 'on their way');
    if (fault === 'crash') await servers.redis.crash();
    else if (fault === 'reset') servers.redisProxy.reset();
    else servers.redisProxy.blackHole();
    await seenBlocked(servers.db, 2); // One that L1 let pass waits for the marker.
    await letGo();
    const counts = countKinds(await Promise.all([...before, ...during]));
    const {
      '200 fresh': fresh,
      '200 replayed': _,
      '409 ABORTED': __,
      '409 ALREADY_EXISTS': ___,
      '503 UNAVAILABLE': ____,
      ...others
    } = counts;
    expect([fresh, others]).toEqual([1, {}]);
    expect(await effectsOn(servers, request)).toBe(1);
  });
});
