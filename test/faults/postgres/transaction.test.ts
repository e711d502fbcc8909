/**
 * The transaction is the request's: whatever the work sends, it can neither end nor leave it.
 * Each case sends three times without Redis, which would hide a lost marker behind its replay.
 */

import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { INSUFFICIENT_COINS } from '../../../functions/problems.ts';
import { type HttpResponse, Problem } from '../../../shared/index.ts';
import { compareAndSwap, STALE, type Tx } from '../../../shared/postgres/index.ts';
import {
  createTestDatabase,
  markersOf,
  playerOf,
  seedPlayer,
  type TestDatabase,
} from '../../support/database.ts';
import { newKey, send } from '../../support/requests.ts';
import { rewritingProxy } from '../../support/rewriting-proxy.ts';
import { testService } from '../../support/service.ts';
import { DONE, STORES, takeCoin, testHandler } from '../../support/test-handler.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());

type Work = (tx: Tx, principal: string) => Promise<HttpResponse | Problem>;

const modes = STORES.flatMap((store) =>
  ['on', 'off'].map((pipeline) => ({ store, pipeline }) as const),
);

async function newRequest() {
  const principal = `p-${newKey()}`;
  await seedPlayer(db, principal);
  return { principal, key: newKey(), body: {} };
}

/** Markers and records that are committed for this principal. */
async function claimsOf(principal: string): Promise<number> {
  const records = await db.sql(
    `SELECT FROM idempotency_records WHERE account_id = $1 AND status = 'completed'`,
    [principal],
  );
  return records.length + (await markersOf(db, principal)).length;
}

describe.each(modes)('$store, pipelining $pipeline', ({ store, pipeline }) => {
  const handlerOf = (work: Work, apiUrl = db.apiUrl) =>
    testHandler(testService({ apiUrl }, { BACKSTOP_PIPELINE: pipeline }), work, store);

  test('a COMMIT that the server refuses costs no connection and leaves no claim', async () => {
    const service = testService({ apiUrl: db.apiUrl }, { BACKSTOP_PIPELINE: pipeline });
    const pids = new Set<number>();
    const refused = testHandler(
      service,
      async (tx) => {
        const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
        pids.add(rows[0]?.pid as number);
        await tx.query(
          'CREATE TEMP TABLE IF NOT EXISTS late (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)',
        );
        await tx.query('INSERT INTO late VALUES (1), (1)');
        return DONE;
      },
      store,
    );
    const taken = testHandler(service, takeCoin, store);
    for (let count = 0; count < 10; count++) {
      const request = await newRequest();
      expect((await send(refused, request)).status).toBe(500);
      expect((await send(taken, request)).status).toBe(200);
    }
    expect(pids.size).toBe(1);
  });

  describe('transaction control is refused, loudly, and the key stays unused (C115, core 17, library B1)', () => {
    const forms: [string, Work][] = [
      [
        'BEGIN … ROLLBACK in a helper that swallows its error',
        async (tx, principal) => {
          try {
            await tx.query('BEGIN');
            await tx.query('SELECT 1/0');
          } catch {
            await tx.query('ROLLBACK').catch(() => {});
          }
          return takeCoin(tx, principal);
        },
      ],
      [
        'BEGIN … COMMIT in a helper',
        async (tx, principal) => {
          await tx.query('begin');
          await takeCoin(tx, principal);
          await tx.query('COMMIT');
          return DONE;
        },
      ],
      [
        'ROLLBACK, then an effect',
        async (tx, principal) => {
          await tx.query('ROLLBACK').catch(() => {});
          return takeCoin(tx, principal);
        },
      ],
      [
        'an effect, COMMIT behind a comment, then a throw',
        async (tx, principal) => {
          await takeCoin(tx, principal);
          await tx.query('/* done */ COMMIT').catch(() => {});
          throw new Error('after the commit');
        },
      ],
      [
        'several statements in one text',
        async (tx, principal) => {
          await tx.query(`SELECT '${principal}'; COMMIT; BEGIN`).catch(() => {});
          return takeCoin(tx, principal);
        },
      ],
      [
        'a two-phase commit',
        async (tx, principal) => {
          await takeCoin(tx, principal);
          await tx.query(`PREPARE TRANSACTION 'x'`).catch(() => {});
          return DONE;
        },
      ],
    ];
    test.each(forms)('work that sends %s fails and leaves its key unused', async (_, work) => {
      const request = await newRequest();
      const handler = handlerOf(work);
      for (let n = 0; n < 3; n++) {
        expect(await send(handler, request)).toMatchObject({ status: 500, code: 'INTERNAL' });
      }
      expect(await playerOf(db, request.principal)).toEqual({ coins: 1000, version: 1 });
      expect(await claimsOf(request.principal)).toBe(0);
      expect(await send(handlerOf(takeCoin), request)).toMatchObject({ status: 200 });
    });

    test('the error names what was not sent and what to use in its place', async () => {
      let message = '';
      const work: Work = async (tx) => {
        await tx.query('COMMIT').catch((error: Error) => {
          message = error.message;
        });
        return DONE;
      };
      await send(handlerOf(work), await newRequest());
      expect(message).toMatch(/COMMIT was not sent.*tx\.savepoint\(fn\).*throw/);
    });

    test('two statements in one text are refused by the server, with values and without', async () => {
      const request = await newRequest();
      for (const values of [undefined, [], [1]]) {
        const handler = handlerOf(async (tx, principal) => {
          await takeCoin(tx, principal);
          await tx.query(`SELECT ${values?.length ? '$1::int' : '1'}; SELECT 2`, values);
          return DONE;
        });
        expect((await send(handler, request)).status).toBe(500);
      }
      expect((await playerOf(db, request.principal)).coins).toBe(1000);
    });
  });

  test('a transaction that ends all the same is never acknowledged and never denied (C115)', async () => {
    for (const [word, coins] of [
      ['COMMIT', 999],
      ['ABORT;', 1000],
    ] as const) {
      // The text that passes is swapped on the wire for what the client would not send.
      const url = await swapOnTheWire(db.apiUrl, 'VALUES', word.padEnd(6));
      const request = await newRequest();
      const handler = handlerOf(async (tx, principal) => {
        await takeCoin(tx, principal);
        await tx.query('VALUES').catch(() => {});
        return DONE;
      }, url);
      const answer = await send(handler, request);
      expect(answer).toMatchObject({ status: 503, code: 'OUTCOME_UNKNOWN' });
      expect(answer.json).toMatchObject({ retryable: false });
      expect(answer.headers['retry-after']).toBeUndefined();
      expect((await playerOf(db, request.principal)).coins).toBe(coins);
    }
  });

  describe('queries of a duplicate that nobody awaits in time (C116, core 14, library S1)', () => {
    test.each<[string, Work]>([
      [
        'both are awaited in turn',
        async (tx, principal) => {
          const first = tx.query('SELECT 1');
          const second = tx.query('UPDATE players SET coins = coins - 1 WHERE user_id = $1', [
            principal,
          ]);
          await first;
          await second;
          return DONE;
        },
      ],
      [
        'one is void',
        async (tx, principal) => {
          void tx.query('SELECT 1');
          return takeCoin(tx, principal);
        },
      ],
    ])(
      'a duplicate with queries of which %s is refused, and the process lives',
      async (_, work) => {
        const unhandled: unknown[] = [];
        const note = (reason: unknown) => unhandled.push(reason);
        process.on('unhandledRejection', note);
        onTestFinished(() => void process.off('unhandledRejection', note));
        const request = await newRequest();
        const handler = handlerOf(work);
        expect((await send(handler, request)).status).toBe(200);
        const again = await send(handler, request);
        expect(again.status).toBe(store === 'mutation' ? 409 : 200);
        expect((await playerOf(db, request.principal)).coins).toBe(999);
        await new Promise(setImmediate);
        expect(unhandled).toEqual([]);
      },
    );
  });

  describe('the savepoints of the work (C122, core 7, library S13)', () => {
    test.each(['work', 'WORK', 'w'])(
      'a returned 402 after a savepoint named %s keeps nothing',
      async (name) => {
        const request = await newRequest();
        const handler = handlerOf(async (tx, principal) => {
          await takeCoin(tx, principal);
          await tx.query(`SAVEPOINT ${name}`);
          await takeCoin(tx, principal);
          return new Problem(INSUFFICIENT_COINS, 'no');
        });
        expect((await send(handler, request)).status).toBe(402);
        expect(await playerOf(db, request.principal)).toEqual({ coins: 1000, version: 1 });
        expect(await claimsOf(request.principal)).toBe(1);
      },
    );

    test('a compareAndSwap that starts anew after a savepoint named work has one effect', async () => {
      const request = await newRequest();
      let tries = 0;
      const handler = handlerOf((tx, principal) =>
        compareAndSwap<HttpResponse>(tx, async () => {
          await takeCoin(tx, principal);
          await tx.query('SAVEPOINT work');
          return ++tries === 1 ? STALE : DONE;
        }),
      );
      expect((await send(handler, request)).status).toBe(200);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 999, version: 2 });
    });

    test('tx.savepoint undoes its own part and nothing else, and nests', async () => {
      const request = await newRequest();
      const boom = new Error('boom');
      const handler = handlerOf(async (tx, principal) => {
        await takeCoin(tx, principal);
        const caught = await tx
          .savepoint(async () => {
            await takeCoin(tx, principal);
            await tx.savepoint(() => takeCoin(tx, principal));
            throw boom;
          })
          .catch((error: unknown) => error);
        expect(caught).toBe(boom);
        const kept = await tx.savepoint(async () => {
          await takeCoin(tx, principal);
          await tx.savepoint(() => tx.query('SELECT 1/0')).catch(() => {});
          await takeCoin(tx, principal);
          return 'kept';
        });
        expect(kept).toBe('kept');
        return DONE;
      });
      expect((await send(handler, request)).status).toBe(200);
      expect(await playerOf(db, request.principal)).toEqual({ coins: 997, version: 4 });
    });

    test('an error of SQL that fn swallows is thrown by the savepoint, and its part is undone', async () => {
      const request = await newRequest();
      const handler = handlerOf(async (tx, principal) => {
        const failed = tx.savepoint(async () => {
          await takeCoin(tx, principal);
          await tx.query('SELECT 1/0').catch(() => {});
        });
        await expect(failed).rejects.toMatchObject({ code: '25P02' });
        return takeCoin(tx, principal);
      });
      expect((await send(handler, request)).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });

    test('an error in a part that was undone does not decide what the rest of the work means', async () => {
      const request = await newRequest();
      let runs = 0;
      const handler = handlerOf(async (tx, principal) => {
        await tx.savepoint(() => tx.query('SELECT 1/0')).catch(() => {});
        if (++runs === 1) {
          await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'collided' USING ERRCODE = '40001'; END $$`);
        }
        return takeCoin(tx, principal);
      });
      expect((await send(handler, request)).status).toBe(200);
      expect(runs).toBe(2);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });

    test('a statement or a savepoint beside an open one is refused, since it would be undone with it', async () => {
      const request = await newRequest();
      const handler = handlerOf(async (tx, principal) => {
        const beside = await Promise.allSettled([
          tx.savepoint(() => takeCoin(tx, principal)),
          tx.savepoint(() => takeCoin(tx, principal)),
          takeCoin(tx, principal),
        ]);
        expect(beside.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected']);
        return DONE;
      });
      expect((await send(handler, request)).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    });
  });

  test('a query that a savepoint sends when it is over is refused, so that no half of it stays (C122)', async () => {
    const request = await newRequest();
    const late = Promise.withResolvers<void>();
    const handler = handlerOf(async (tx, principal) => {
      let isLateRefused = false;
      const slow = async () => {
        await takeCoin(tx, principal);
        await late.promise;
        const refused = [tx.query('SELECT 1'), tx.restart(), tx.savepoint(async () => {})];
        const settled = await Promise.allSettled(refused);
        isLateRefused = settled.every(({ status }) => status === 'rejected');
      };
      let running: Promise<void> | undefined;
      await tx
        .savepoint(async () => {
          running = slow();
          throw new Error('took too long');
        })
        .catch(() => {});
      await takeCoin(tx, principal);
      late.resolve();
      await running;
      return { statusCode: 200, body: String(isLateRefused) };
    });
    expect(await send(handler, request)).toMatchObject({ status: 200, text: 'true' });
    expect((await playerOf(db, request.principal)).coins).toBe(999);
  });

  test.each([
    ['SET search_path = pg_temp', 'SET'],
    ['/* for all */ reset all', 'RESET'],
  ])(
    '%s is refused, since it would reach the next request on the connection (core 24)',
    async (text, word) => {
      let message = '';
      const handler = handlerOf(async (tx) => {
        await tx.query(text).catch((error: Error) => {
          message = error.message;
        });
        return DONE;
      });
      expect((await send(handler, await newRequest())).status).toBe(500);
      expect(message).toMatch(new RegExp(`${word} was not sent.*SET LOCAL`));
    },
  );

  test('what is no text, no list of values, or COPY from a client is refused before it is sent', async () => {
    const request = await newRequest();
    const handler = handlerOf(async (tx, principal) => {
      const submittable = { startsWith: () => false, submit: () => {} };
      for (const [text, values] of [
        [submittable],
        [undefined],
        ['SELECT 1', 'x'],
        ['COPY t FROM STDIN'],
      ]) {
        await expect(tx.query(text as never, values as never)).rejects.toThrow(/tx\.query/);
      }
      return takeCoin(tx, principal);
    });
    expect((await send(handler, request)).status).toBe(200);
    expect((await playerOf(db, request.principal)).coins).toBe(999);
  });

  test.each([undefined, null, 0, ''])(
    'a value whose own conversion throws %j fails its query, and COMMIT means what it says',
    async (thrown) => {
      const request = await newRequest();
      const handler = handlerOf(async (tx, principal) => {
        const value = {
          toPostgres: () => {
            throw thrown;
          },
        };
        await expect(tx.query('SELECT $1::text', [value])).rejects.toThrow();
        return takeCoin(tx, principal);
      });
      expect((await send(handler, request)).status).toBe(200);
      expect((await playerOf(db, request.principal)).coins).toBe(999);
    },
  );

  test.each(['SELECT $1::text', 'SELECT 1 WHERE $2::int = 1'])(
    'a wrong number of values is a mistake and no outage: %s',
    async (text) => {
      let runs = 0;
      const handler = handlerOf(async (tx) => {
        runs++;
        await tx.query(text, [1, 2, 3]);
        return DONE;
      });
      const answer = await send(handler, await newRequest());
      expect([answer.status, answer.code, runs]).toEqual([500, 'INTERNAL', 1]);
    },
  );

  test('a value that cannot be sent fails its query, and the connection goes on (core 24)', async () => {
    const request = await newRequest();
    const service = testService(db, { BACKSTOP_PIPELINE: pipeline, BACKSTOP_POOL_MAX: '1' });
    const circular: Record<string, unknown> = {};
    circular['self'] = circular;
    const handler = testHandler(
      service,
      async (tx, principal) => {
        await tx.query('SELECT $1::text', [circular]).catch(() => {});
        return takeCoin(tx, principal);
      },
      store,
    );
    const pidOf = async () =>
      (await service.database.pool.query('SELECT pg_backend_pid() AS pid')).rows[0].pid;
    const pid = await pidOf();
    expect((await send(handler, request)).status).toBe(200);
    expect(await pidOf()).toBe(pid);
  });
});

/** A proxy that puts `to` in the place of `from`, of the same length, once. */
function swapOnTheWire(targetUrl: string, from: string, to: string): Promise<string> {
  expect(to).toHaveLength(from.length);
  let isSwapped = false;
  return rewritingProxy(targetUrl, (chunk) => {
    const at = isSwapped ? -1 : chunk.indexOf(`${from}\0`);
    if (at < 0) return chunk;
    isSwapped = true;
    chunk.write(to, at);
    return chunk;
  });
}
