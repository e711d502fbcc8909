/** The first request of an execution environment: nothing is connected yet. */
import { expect, test } from 'vitest';
import { send } from '../../support/requests.ts';
import { eventually } from '../../support/waiting.ts';
import {
  effectsOn,
  kindOf,
  newRequest,
  PATIENT,
  sessionsOf,
  spender,
  useServers,
  warmSpender,
} from './servers.ts';

const servers = useServers({ ...PATIENT, BACKSTOP_POOL_MAX: '1' });

/** shared/postgres/pool.ts */
const WARM_MS_MAX = 250;

const sessions = () => sessionsOf(servers);

test('Postgres is connected to while Redis still is being', async () => {
  const request = await newRequest(servers);
  const held = servers.redisProxy.holdAnswer(() => true);
  const answer = send(spender(servers).spend, request);
  await held;
  await eventually(
    async () => (await sessions())[0]?.state === 'idle',
    'a connection, in use by nobody',
  );
  expect(await effectsOn(servers, request)).toBe(0);
  await servers.redisProxy.pass();
  expect(kindOf(await answer)).toBe('200 fresh');
  expect(await sessions()).toHaveLength(1);
});

test('a connection that a replay has begun to open is open when it answers', async () => {
  const request = await newRequest(servers);
  await send((await warmSpender(servers)).spend, request);
  servers.postgresProxy.delay({ toClient: 20 });
  await eventually(async () => {
    const known = (await sessions()).map(({ pid }) => pid);
    const startMs = performance.now();
    expect(kindOf(await send(spender(servers).spend, request))).toBe('200 replayed');
    // It waits for its connection no longer than this: a machine that needs more shows nothing.
    if (performance.now() - startMs > WARM_MS_MAX) return false;
    const others = (await sessions()).filter(({ pid }) => !known.includes(pid));
    expect(others).toMatchObject([{ state: 'idle' }]);
    return true;
  }, 'a replay in less than the time that it waits for its connection');
});

test('a replay while Postgres is silent does not wait to the end of its connect time-out', async () => {
  const request = await newRequest(servers);
  await send((await warmSpender(servers)).spend, request);
  servers.postgresProxy.blackHole();
  const never = { BACKSTOP_DATABASE_CONNECT_TIMEOUT_MS: '600000' };
  expect(kindOf(await send(spender(servers, never).spend, request))).toBe('200 replayed');
});
