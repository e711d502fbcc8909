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
  endingWith,
  faultRig,
  holdPlayer,
  kindOf,
  newRequest,
  PATIENT,
  type Spender,
  type SpendRequest,
  spender,
  warmSpender,
} from './rig.ts';

/** Of the request that is struck; whoever looks afterwards has all the time. */
const IMPATIENT = { ...PATIENT, BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '100' };

const rig = faultRig(IMPATIENT);
let s: Spender;
let request: SpendRequest;
beforeEach(async () => {
  request = await newRequest(rig);
});

const failing = () =>
  endingWith(s.service, async () => {
    throw new Problem('NOT_FOUND', 'Thrown by the test.');
  });

/** How many commands of the product Redis has carried out. */
async function carriedOut(): Promise<number> {
  const stats = await rig.redis.raw.info('commandstats');
  const calls = (name: string) =>
    Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  return calls('set') + calls('eval');
}

const FAULTS = [
  {
    name: 'its answer is lost with the connection',
    environment: PATIENT,
    strike: () => rig.redisProxy.dropAfter('NX'),
  },
  {
    name: 'its answer is lost in silence',
    strike: () => rig.redisProxy.dropAfter('NX', 'silence'),
  },
  {
    name: 'its answer is late',
    strike: async () => rig.redisProxy.delay({ toClient: 500 }),
  },
  {
    name: 'it arrives late',
    strike: async () => rig.redisProxy.delay({ toServer: 500 }),
  },
  {
    name: 'Redis stands still, and then goes on',
    strike: async () => rig.redis.freeze(),
  },
];

describe.each(FAULTS)('the claim by SET NX fails: $name', ({ strike, environment = IMPATIENT }) => {
  beforeEach(async () => {
    s = await warmSpender(rig, environment);
  });

  test('a request that fails leaves nothing, and the next one runs', async () => {
    const before = await carriedOut();
    const struck = strike();
    const answer = await send(failing(), request);
    await struck;
    expect(kindOf(answer)).toBe('404 NOT_FOUND');
    expect(s.failures).toHaveBeenCalledWith('claim');
    rig.redis.thaw();
    await eventually(async () => (await carriedOut()) >= before + 2, 'claim and release');
    expect(await rig.redis.entries()).toEqual([]);
    expect(kindOf(await send(spender(rig, PATIENT).spend, request))).toBe('200 fresh');
    expect(await effectsOn(rig, request)).toBe(1);
  });

  test('a request that succeeds is published, and the next one replays', async () => {
    const before = await carriedOut();
    const struck = strike();
    const fresh = await send(s.spend, request);
    await struck;
    expect(kindOf(fresh)).toBe('200 fresh');
    rig.redis.thaw();
    await eventually(async () => (await carriedOut()) >= before + 2, 'claim and publish');
    expect((await rig.redis.entry()).json).toMatchObject({ state: 'completed' });
    await rig.redisProxy.pass();
    const replay = await send(spender(rig, PATIENT).spend, request);
    expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
    expect(await effectsOn(rig, request)).toBe(1);
  });
});

describe('a cool-down that begins while a request is at work', () => {
  /** Time enough for a claim on a busy machine, and three time-outs of it can be waited for. */
  const COOLING = {
    BACKSTOP_REDIS_COMMAND_TIMEOUT_MS: '1000',
    BACKSTOP_REDIS_COOL_DOWN_MS: '600000',
  };

  /** Three others find L1 dead; then it is well again, and left alone. */
  async function beginCoolDown(): Promise<void> {
    const others = await newRequest(rig);
    rig.redisProxy.blackHole();
    for (let i = 0; i < 3; i++) {
      const stale = { ...others, key: `k${i}`, headers: { 'if-match': '"9"' } };
      await send(s.spend, stale);
    }
    await rig.redisProxy.pass();
    await eventually(async () => {
      const isUp = s.service.dependencies['redis']?.().then(() => true);
      return isUp?.catch(() => false);
    }, 'a connection that stands');
    const touched = rig.redisProxy.count('idem:');
    expect(kindOf(await send(s.spend, others))).toBe('200 fresh');
    expect(touched()).toBe(0);
  }

  test('the cool-down does not keep a request from releasing its key', async () => {
    s = await warmSpender(rig, COOLING);
    const letGo = await holdPlayer(rig, request);
    const answer = send(failing(), request);
    await seenBlocked(rig.db);
    await beginCoolDown();
    expect(await rig.redis.entry()).toMatchObject({ json: { state: 'pending' } });
    await letGo();
    expect(kindOf(await answer)).toBe('404 NOT_FOUND');
    expect(await rig.redis.entries()).toEqual([]);
  });

  test('the cool-down does not keep a request from publishing', async () => {
    s = await warmSpender(rig, COOLING);
    const letGo = await holdPlayer(rig, request);
    const answer = send(s.spend, request);
    await seenBlocked(rig.db);
    await beginCoolDown();
    await letGo();
    const fresh = await answer;
    expect(kindOf(fresh)).toBe('200 fresh');
    const replay = await send(spender(rig, PATIENT).spend, request);
    expect([kindOf(replay), replay.text]).toEqual(['200 replayed', fresh.text]);
    expect(await effectsOn(rig, request)).toBe(1);
  });
});
