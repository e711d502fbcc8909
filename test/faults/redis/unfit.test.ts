/** A Redis that answers and is no use until somebody mends it, and what the log says of it. */
import { once } from 'node:events';
import net from 'node:net';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { Problem } from '../../../shared/index.ts';
import { cacheRights } from '../../support/cache-rights.ts';
import { ENTRIES, TEST_NAMESPACE } from '../../support/redis.ts';
import { newKey, send } from '../../support/requests.ts';
import { eventually } from '../../support/waiting.ts';
import {
  effectsOn,
  handlerEndingWith,
  kindOf,
  newRequest,
  PATIENT,
  type SpendRequest,
  spender,
  useServers,
} from './servers.ts';

const servers = useServers(PATIENT);
let request: SpendRequest;
beforeEach(async () => {
  request = await newRequest(servers);
});

/** Everything that is logged from here on, whatever the level. */
function listen(s: ReturnType<typeof spender>) {
  const lines: { level: string; text: string }[] = [];
  s.service.logger.setLogLevel('DEBUG');
  for (const stream of [process.stdout, process.stderr]) {
    vi.spyOn(stream, 'write').mockImplementation((chunk) => {
      const text = String(chunk);
      lines.push({ level: /"level":"(\w+)"/.exec(text)?.[1]?.toLowerCase() ?? '', text });
      return true;
    });
  }
  onTestFinished(() => void vi.restoreAllMocks());
  return lines;
}

/** A user with the deployed rights, but for those. */
async function userWithout(...missing: string[]): Promise<string> {
  const name = `user-${newKey()}`;
  const rights = cacheRights(TEST_NAMESPACE).filter((right) => !missing.includes(right));
  await servers.redis.raw.call('ACL', 'SETUSER', name, 'reset', '>secret-password', ...rights);
  onTestFinished(() => void servers.redis.raw.call('ACL', 'DELUSER', name).catch(() => {}));
  const url = new URL(servers.redis.url);
  url.username = name;
  url.password = 'secret-password';
  return url.href;
}

describe('a user who lacks a right (C139)', () => {
  test.each([
    ['+eval', /eval/],
    ['+get', /get|script/i],
    ['+del', /del|script/i],
    ['+set', /set/],
    [`~${TEST_NAMESPACE}:*`, /key/],
  ])('a user without %s shuts no key, and one ERROR line says why', async (missing, which) => {
    const s = spender(servers, { REDIS_URL: await userWithout(missing) });
    const lines = listen(s);
    const failing = handlerEndingWith(s.service, async () => {
      throw new Problem('NOT_FOUND', 'Thrown by the test.');
    });
    expect(kindOf(await send(failing, request))).toBe('404 NOT_FOUND');
    expect(await servers.redis.raw.keys('*')).toEqual([]);
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
    expect(await effectsOn(servers, request)).toBe(1);

    const errors = lines.filter(({ level, text }) => level === 'error' && text.includes('Redis'));
    expect(errors).toHaveLength(1);
    expect(errors[0]?.text).toContain('+set +get +del +eval');
    expect(errors[0]?.text).toMatch(which);
    expect(s.failures).toHaveBeenCalledTimes(1);
    expect(JSON.stringify(lines)).not.toContain('secret-password');
  });

  test('the first claim of a user who lacks nothing finds out in its own round trip, and others add nothing', async () => {
    const s = spender(servers, { REDIS_URL: await userWithout() });
    await s.service.dependencies['redis']?.();
    const said = await servers.redis.monitor();
    for (const each of [request, await newRequest(servers)]) {
      expect(kindOf(await send(s.spend, each))).toBe('200 fresh');
    }
    const names = (await said()).map(([name]) => name?.toLowerCase());
    expect(names).toEqual(['eval', 'get', 'del', 'set', 'set', 'set', 'set']);
  });
});

test('a Redis older than 7 is reported once, with what to do, and the store serves alone (C146)', async () => {
  const s = spender(servers, { REDIS_URL: await startOldRedis() });
  const lines = listen(s);
  expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
  expect(kindOf(await send(s.spend, request))).toBe('409 ALREADY_EXISTS');
  expect(await effectsOn(servers, request)).toBe(1);
  const errors = lines.filter(({ level, text }) => level === 'error' && text.includes('Redis'));
  expect(errors).toHaveLength(1);
  expect(errors[0]?.text).toContain('Redis 7 or newer, or Valkey');
  expect(s.failures).toHaveBeenCalledTimes(1);
});

/**
 * The real server, which is made to refuse what one before 7 does not know: on the way there the
 * word GET behind NX becomes one that no Redis knows, and its own refusal comes back.
 */
async function startOldRedis(): Promise<string> {
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(new URL(servers.redis.url).port), '127.0.0.1');
    client.on('data', (chunk) => {
      const text = chunk.toString('latin1');
      upstream.write(text.replaceAll('$2\r\nNX\r\n$3\r\nGET', '$2\r\nNX\r\n$3\r\nGEX'), 'latin1');
    });
    upstream.pipe(client);
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on('error', () => {}).on('close', () => other.destroy());
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return `redis://127.0.0.1:${(server.address() as net.AddressInfo).port}`;
}

describe('the log says why Redis cannot be reached, and no secret (core 19, library A4)', () => {
  const nowhere = 'redis://user:secret-password@127.0.0.1:1';
  test.each([
    [
      'a wrong password',
      () => servers.redis.url.replace('//', '//user:secret-password@'),
      'WRONGPASS',
    ],
    ['nobody at the address', () => nowhere, 'ECONNREFUSED'],
    ['no such name', () => 'redis://secret-user:secret-password@backstop.invalid', 'ENOTFOUND'],
  ])('the log names the reason when there is %s', async (_what, url, why) => {
    const s = spender(servers, { REDIS_URL: url() });
    const lines = listen(s);
    expect(kindOf(await send(s.spend, request))).toBe('200 fresh');
    const warnings = () => lines.filter(({ level }) => level === 'warn');
    expect(warnings()[0]?.text).toContain('Redis: the connection failed');
    expect(warnings()[0]?.text).toContain(why);
    await eventually(async () => lines.some(({ level }) => level === 'debug'), 'a line of DEBUG');
    expect(lines.map(({ text }) => text).join('\n')).not.toMatch(/secret-/);
  });
});

describe('a pending entry of a clock that is ten minutes fast (core 23)', () => {
  async function leavePending(deadlineMs: number): Promise<void> {
    const s = spender(servers);
    expect(kindOf(await send(s.spend, { ...request, body: { amount: 10 } }))).toBe('200 fresh');
    const { key, json } = await servers.redis.entry();
    const pending = {
      v: 1,
      state: 'pending',
      fingerprint: json?.['fingerprint'],
      token: newKey(),
      deadlineMs,
    };
    await servers.redis.raw.set(key, JSON.stringify(pending), 'PXAT', Math.ceil(deadlineMs + 1000));
  }

  test('a pending entry beyond the longest request does not count, and the marker decides at once', async () => {
    await leavePending(Date.now() + 600_000);
    expect(kindOf(await send(spender(servers).spend, request))).toBe('409 ALREADY_EXISTS');
    // A dead owner left no marker either.
    await servers.db.sql('DELETE FROM player_mutation_idempotency WHERE user_id = $1', [
      request.principal,
    ]);
    expect(kindOf(await send(spender(servers).spend, request))).toBe('200 fresh');
    expect(kindOf(await send(spender(servers).spend, request))).toBe('200 replayed');
    expect(
      await servers.redis.raw.pttl(`${ENTRIES}${request.principal}:${request.key}`),
    ).toBeGreaterThan(3_000_000);
  });

  test('a pending entry within the longest request counts', async () => {
    await leavePending(Date.now() + 27_000);
    expect(kindOf(await send(spender(servers).spend, request))).toBe('409 ABORTED');
  });
});
