/**
 * A SET NX whose answer is lost or late may have been carried out. The request goes
 * on without L1, and when it has ended no pending entry stands that nobody works on.
 */
import { beforeEach, describe, expect, test } from 'vitest';
import { Problem } from '../../../shared/index.ts';
import { send } from '../../support/requests.ts';
import { eventually, seenBlocked } from '../../support/waiting.ts';
import {
  effectsOn,
  handlerEndingWith,
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

/** Of the request that is injected; whoever looks afterwards has all the time. */
const IMPATIENT = { ...PATIENT, BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '100' };

const servers = useServers(IMPATIENT);
let s: Spender;
let request: SpendRequest;
beforeEach(async () => {
  request = await newRequest(servers);
});

const failing = () =>
  handlerEndingWith(s.service, async () => {
    throw new Problem('NOT_FOUND', 'Thrown by the test.');
  });

/** How many commands of the product Redis has carried out. */
async function carriedOut(): Promise<number> {
  const stats = await servers.redis.raw.info('commandstats');
  const calls = (name: string) =>
    Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  return calls('set') + calls('eval');
}

const FAULTS = [
  {
    name: 'its answer is lost with the connection',
    environment: PATIENT,
    injectFault: () => servers.redisProxy.dropAfter('NX'),
  },
  {
    name: 'its answer is lost in silence',
    injectFault: () => servers.redisProxy.dropAfter('NX', 'silence'),
  },
  {
    name: 'its answer is late',
    injectFault: async () => servers.redisProxy.delay({ toClient: 500 }),
  },
  {
    name: 'it arrives late',
    injectFault: async () => servers.redisProxy.delay({ toServer: 500 }),
  },
  {
    name: 'Redis stands still, and then goes on',
    injectFault: async () => servers.redis.freeze(),
  },
];

describe.each(FAULTS)(
  'the claim by SET NX fails: $name',
  ({ injectFault, environment = IMPATIENT }) => {
    beforeEach(async () => {
      s = await warmSpender(servers, environment);
    });

    test('a request that fails leaves nothing, and the next one runs', async () => {
      const before = await carriedOut();
      const injected = injectFault();
      const answer = await send(failing(), request);
      await injected;
      expect(kindOf(answer)).toBe('404 NOT_FOUND');
      expect(s.failures).toHaveBeenCalledWith('claim');
      servers.redis.thaw();
      await eventually(async () => (await carriedOut()) >= before + 2, 'claim and release');
      expect(await servers.redis.entries()).toEqual([]);
      expect(kindOf(await send(spender(servers, PATIENT).spend, request))).toBe('200 fresh');
      expect(await effectsOn(servers, request)).toBe(1);
    });

    test('a request that succeeds is published, and the next one replays', async () => {
      const before = await carriedOut();
      const injected = injectFault();
      const fresh = await send(s.spend, request);
      await injected;
      expect(kindOf(fresh)).toBe('200 fresh');
      servers.redis.thaw();
      await eventually(async () => (await carriedOut()) >= before + 2, 'claim and publish');
      expect((await servers.redis.entry()).json).toMatchObject({ state: 'completed' });
      await servers.redisProxy.pass();
      const replay = await send(spender(servers, PATIENT).spend, request);
      expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
      expect(await effectsOn(servers, request)).toBe(1);
    });
  },
);

describe('a cool-down that begins while a request is at work', () => {
  /** Time enough for a claim on a busy machine, and three time-outs of it can be waited for. */
  const COOLING = {
    BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '1000',
    BACKSTOP_REDIS_COOL_DOWN_MS: '600000',
  };

  /** Three others find L1 dead; then it is well again, and left alone. */
  async function beginCoolDown(): Promise<void> {
    const others = await newRequest(servers);
    servers.redisProxy.blackHole();
    for (let i = 0; i < 3; i++) {
      const stale = { ...others, key: `k${i}`, headers: { 'if-match': '"9"' } };
      await send(s.spend, stale);
    }
    await servers.redisProxy.pass();
    await eventually(async () => {
      const isUp = s.service.dependencies['redis']?.().then(() => true);
      return isUp?.catch(() => false);
    }, 'a connection that stands');
    const touched = servers.redisProxy.count('idem:');
    expect(kindOf(await send(s.spend, others))).toBe('200 fresh');
    expect(touched()).toBe(0);
  }

  test('the cool-down does not keep a request from releasing its key', async () => {
    s = await warmSpender(servers, COOLING);
    const letGo = await holdPlayer(servers, request);
    const answer = send(failing(), request);
    await seenBlocked(servers.db);
    await beginCoolDown();
    expect(await servers.redis.entry()).toMatchObject({ json: { state: 'pending' } });
    await letGo();
    expect(kindOf(await answer)).toBe('404 NOT_FOUND');
    expect(await servers.redis.entries()).toEqual([]);
  });

  test('the cool-down does not keep a request from publishing', async () => {
    s = await warmSpender(servers, COOLING);
    const letGo = await holdPlayer(servers, request);
    const answer = send(s.spend, request);
    await seenBlocked(servers.db);
    await beginCoolDown();
    await letGo();
    const fresh = await answer;
    expect(kindOf(fresh)).toBe('200 fresh');
    const replay = await send(spender(servers, PATIENT).spend, request);
    expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
    expect(await effectsOn(servers, request)).toBe(1);
  });
});
