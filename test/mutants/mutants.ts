export interface Mutant {
  readonly id: string;
  /** What a careless change would have done. */
  readonly fault: string;
  readonly file: string;
  /** Stands there exactly once, unless `all` of its places are meant. */
  readonly from: string;
  readonly to: string;
  readonly all?: true;
  /** The files (or folders) whose tests must catch it. */
  readonly tests: readonly string[];
  /** Only tests whose name matches. */
  readonly name?: string;
}

const CLAIM = 'test/faults/postgres/claim.test.ts';
const CONNECTION = 'test/faults/postgres/connection.test.ts';
const CONFLICTS = 'test/faults/postgres/conflicts.test.ts';
const RECORDS = 'test/integration/records.test.ts';
const RECORD_SWEEPS = 'test/integration/purge/records.test.ts';
const CLUSTER_LATE = 'test/faults/redis/cluster-late.test.ts';
const CONFORMANCE = 'test/conformance/marker.test.ts';

export const MUTANTS: readonly Mutant[] = [
  {
    id: 'no-claim',
    fault: 'step 0 is left out',
    file: 'shared/postgres/marker-store.ts',
    from: 'step0: (send) => claimMarker(send, request, deadlineServerMs)',
    to: 'step0: (send) => enterTransaction(send, deadlineServerMs)',
    tests: [CONFORMANCE],
  },
  {
    id: 'claim-answers',
    fault: 'a used key answers nothing instead of raising',
    file: 'shared/postgres/migrations/0001_tables.sql',
    from: `  IF claimed_at IS NULL THEN
    RAISE EXCEPTION 'claim_marker: this key was used before' USING ERRCODE = 'IDM01';
  END IF;`,
    to: '',
    tests: [CLAIM],
  },
  {
    id: 'no-deferrable-guard',
    fault: 'the claim runs outside its transaction',
    file: 'shared/postgres/migrations/0001_tables.sql',
    from: `IF current_setting('transaction_deferrable') <> 'on' THEN`,
    to: 'IF false THEN',
    tests: [CONNECTION, CLAIM],
    name: 'BEGIN fails|outside a DEFERRABLE',
  },
  {
    id: 'no-deadline-in-claim',
    fault: 'a frozen request claims after its deadline',
    file: 'shared/postgres/migrations/0001_tables.sql',
    from: 'IF left_ms <= 0 THEN',
    to: 'IF false THEN',
    tests: [CLAIM],
    name: 'claim_marker itself',
  },
  {
    id: 'no-lock-timeout',
    fault: 'waiting for the owner has no end of its own',
    file: 'shared/postgres/migrations/0001_tables.sql',
    from: `  PERFORM set_config('lock_timeout', greatest(1, floor(left_ms))::bigint::text, true);`,
    to: '',
    tests: [CLAIM],
    name: 'ends at the deadline',
  },
  {
    id: 'process-clock',
    fault: 'the deadline is sent on the process clock',
    file: 'shared/postgres/pool.ts',
    from: 'toServerMs: (ourMs) => ourMs + offsetMs',
    to: 'toServerMs: (ourMs) => ourMs + 0 * offsetMs',
    tests: [CLAIM],
    name: 'C61',
  },
  {
    id: 'any-tag-is-commit',
    fault: 'the tag of COMMIT is not read',
    file: 'shared/postgres/attempt.ts',
    from: `tag === 'COMMIT'`,
    to: `tag !== ''`,
    tests: [CLAIM],
    name: 'swallowed',
  },
  {
    id: 'lost-commit-is-an-abort',
    fault: 'a lost answer to COMMIT is tried again without a look',
    file: 'shared/postgres/attempt.ts',
    from: `: { kind: 'unknown-outcome', cause: error };`,
    to: `: { kind: 'retry', because: 'connection', cause: error };`,
    tests: [CONNECTION],
  },
  {
    id: 'status-without-marker',
    fault: 'any committed transaction of that number is taken for ours',
    file: 'shared/postgres/commit-fate.ts',
    from: `markedAtMs === null ? { kind: 'unknown' } : { kind: 'committed', markedAtMs }`,
    to: `{ kind: 'committed', markedAtMs: markedAtMs ?? 0 }`,
    tests: [CONNECTION],
    name: 'the fate of a COMMIT',
  },
  {
    id: 'unprotected-guess',
    fault: 'a lost COMMIT of an unprotected request is taken for a success',
    file: 'shared/postgres/attempt.ts',
    from: 'if (mark === undefined) return unknown;',
    to: `if (mark === undefined) return { kind: 'committed' };`,
    tests: [CONNECTION],
    name: 'without a key',
  },
  {
    id: 'late-queries-run',
    fault: 'tx still sends after the work has settled',
    file: 'shared/postgres/transaction.ts',
    from: 'if (isSettled) throw',
    to: 'if (isSettled && text === "") throw',
    tests: [CLAIM],
    name: 'after the work has settled',
  },
  {
    id: 'dirty-client',
    fault: 'a client goes back to the pool whatever its state',
    file: 'shared/postgres/transaction.ts',
    from: "  if (!isIdle()) await wire.send('ROLLBACK').catch(() => {});",
    to: '',
    tests: [CONNECTION, CONFLICTS],
    name: 'comes back to the pool|C51',
  },
  {
    id: 'no-whole-retry',
    fault: 'a deadlock or a lost connection is not tried again',
    file: 'shared/idempotency/once.ts',
    from: `settlement.kind !== 'retry' || attempts === ATTEMPTS_MAX`,
    to: `settlement.kind !== 'retry' || attempts > 0`,
    tests: [CONFLICTS, CONNECTION],
  },
  {
    id: 'endless-retry',
    fault: 'tries have no bound but the deadline',
    file: 'shared/idempotency/once.ts',
    from: 'attempts === ATTEMPTS_MAX',
    to: 'attempts === 1000',
    tests: [CONNECTION],
    name: 'again and again',
  },
  {
    id: 'keep-refused-writes',
    fault: 'a returned 4xx commits what the work wrote',
    file: 'shared/idempotency/once.ts',
    from: '!isRefusal(response.statusCode)',
    to: 'true',
    tests: [CONFORMANCE],
    name: 'returned refusal',
  },
  {
    id: 'keep-5xx',
    fault: 'a returned 5xx is committed and replayed',
    file: 'shared/idempotency/once.ts',
    from: 'if (isFailure(response.statusCode)) {',
    to: 'if (response.statusCode === 0) {',
    tests: [CONFORMANCE],
    name: 'returned 5xx',
  },
  {
    id: 'no-release',
    fault: 'a failed request keeps its pending entry',
    file: 'shared/idempotency/once.ts',
    from: '  await fastPath.release(mutation);',
    to: '  void fastPath;',
    tests: [CONFORMANCE],
    name: 'Redis on.*thrown',
  },
  {
    id: 'busy-before-mismatch',
    fault: 'another request under a running key hears ABORTED and not 422',
    file: 'shared/idempotency/once.ts',
    from: 'if (sight.fingerprint !== mutation.fingerprint) return',
    to: `if (sight.kind !== 'pending' && sight.fingerprint !== mutation.fingerprint) return`,
    tests: [CONFORMANCE],
    name: 'C01',
  },
  {
    id: 'no-publish',
    fault: 'the response is never published',
    file: 'shared/idempotency/once.ts',
    from: 'await parts.fastPath.publish(mutation, stored, expiresAtMs as number);',
    to: 'void [stored, expiresAtMs];',
    tests: [CONFORMANCE],
    name: 'Redis on',
  },
  {
    id: 'once-twice',
    fault: 'once runs as often as it is called',
    file: 'shared/idempotency/middleware.ts',
    from: 'if (state.isCalled)',
    to: 'if (state.isCalled && !state)',
    tests: [CONFORMANCE],
    name: 'second call of once',
  },
  {
    id: 'outer-throw-wins',
    fault: 'a throw after once turns a success into a failure',
    file: 'shared/idempotency/middleware.ts',
    from: '      if (final) request.response = final;\n      else if (!isAnswered)',
    to: '      if (!isAnswered)',
    tests: [CONFORMANCE],
    name: 'C08',
  },
  {
    id: 'release-anybodys',
    fault: 'release deletes the key whoever holds it',
    file: 'shared/redis/fast-path.ts',
    from: `if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`,
    to: `return redis.call('DEL', KEYS[1])`,
    tests: ['test/faults/redis'],
  },
  {
    id: 'aliasing-keys',
    fault: 'the parts of a Redis key are not encoded',
    file: 'shared/redis/fast-path.ts',
    from: 'idem:${encodeURIComponent(principal)}:${encodeURIComponent(key)}',
    to: 'idem:${principal}:${key}',
    tests: ['test/faults/redis'],
  },
  {
    id: 'relative-expiry',
    fault: 'the pending entry lives as long as it is late',
    file: 'shared/redis/fast-path.ts',
    from: `pending, 'PXAT', expiresAtMs, 'NX', 'GET'`,
    to: `pending, 'PX', 60_000, 'NX', 'GET'`,
    tests: ['test/faults/redis'],
  },
  {
    id: 'no-cool-down',
    fault: 'a dead Redis costs every request its time-out',
    file: 'shared/redis/guard.ts',
    from: 'const FAILURES_BEFORE_COOL_DOWN = 3;',
    to: 'const FAILURES_BEFORE_COOL_DOWN = 1_000_000;',
    tests: ['test/faults/redis'],
  },
  {
    id: 'numbers-as-floats',
    fault: '2^53 + 1 and 2^53 are the same request',
    file: 'shared/idempotency/fingerprint.ts',
    from: 'new NumberSource(context.source)',
    to: 'new NumberSource(String(value))',
    tests: ['test/unit'],
    name: '2\\^53|1\\.0|source',
  },
  {
    id: 'purge-by-created-at',
    fault: 'completed records are purged by when they were claimed',
    file: 'shared/purge/record-sweeps.ts',
    from: `column: 'completed_at'`,
    to: `column: 'created_at'`,
    tests: [RECORD_SWEEPS],
  },
  {
    id: 'purge-in-progress-batched',
    fault: 'abandoned records are chosen first and deleted then',
    file: 'shared/purge/record-sweeps.ts',
    from: `WHERE (SELECT pg_try_advisory_xact_lock($2))
        AND status = 'in_progress'
        AND lease_expires_at < clock_timestamp()
        AND created_at < clock_timestamp() - $1::float8 * interval '1 millisecond'`,
    to: `WHERE (SELECT pg_try_advisory_xact_lock($2)) AND id IN (
          SELECT id FROM idempotency_records
           WHERE status = 'in_progress' AND lease_expires_at < clock_timestamp()
             AND created_at < clock_timestamp() - $1::float8 * interval '1 millisecond' LIMIT 500)`,
    tests: [RECORD_SWEEPS],
  },
  {
    id: 'publish-unguarded',
    fault: 'an owner that was overtaken publishes all the same',
    file: 'shared/postgres/migrations/0004_records.sql',
    from: "WHERE id = p_id AND lease_owner = p_owner AND status = 'in_progress'",
    to: 'WHERE id = p_id',
    tests: [RECORDS],
  },
  {
    id: 'release-anybodys-record',
    fault: 'a zombie that fails late releases the record of the thief',
    file: 'shared/postgres/records.ts',
    from: `
    AND lease_owner = $4 AND status = 'in_progress'`,
    to: ' AND $4::uuid IS NOT NULL',
    tests: [RECORDS],
    name: 'C29',
  },
  {
    id: 'steal-without-swap',
    fault: 'two thieves both win',
    file: 'shared/postgres/migrations/0004_records.sql',
    from: `
       AND r.lease_owner = found_record.lease_owner
       AND (r.lease_owner = p_owner OR r.lease_expires_at < clock_timestamp())`,
    to: '',
    tests: [RECORDS],
    name: 'two thieves',
  },
  {
    id: 'late-redirect',
    fault: 'a claim that was given up is redirected behind its own release',
    file: 'shared/redis/cluster.ts',
    from: '    dropGivenUp(node);\n',
    to: '',
    tests: [CLUSTER_LATE],
  },
  {
    id: 'cluster-resends',
    fault: 'a cluster sends a claim again whose answer was lost',
    file: 'shared/redis/cluster.ts',
    from: 'retryDelayOnFailover: 0',
    to: 'retryDelayOnFailover: 20',
    tests: [CLUSTER_LATE],
  },
  {
    id: 'no-redirects',
    fault: 'a slot that moved is lost to the fast path',
    file: 'shared/redis/cluster.ts',
    from: 'const REDIRECTIONS_MAX = 3',
    to: 'const REDIRECTIONS_MAX = 0',
    tests: ['test/faults/redis/cluster.test.ts'],
    name: 'C42',
  },
  {
    id: 'token-once',
    fault: 'every connection to Redis signs in with the first token',
    file: 'shared/redis/credentials.ts',
    from: '{ get: issue, enumerable: true }',
    to: '{ value: issue(), enumerable: true }',
    tests: ['test/faults/redis/sign-in.test.ts'],
    name: 'new token',
  },
  {
    id: 'unheard-tls-error',
    fault: 'a second error of a refused TLS connection ends the process',
    file: 'shared/redis/tls.ts',
    from: "    stream.on('error', () => {});\n",
    to: '',
    tests: ['test/faults/redis/sign-in.test.ts'],
    name: 'ends nothing',
  },
  {
    id: 'purge-pins',
    fault: 'the purge says set_config itself, which pins in RDS Proxy',
    file: 'shared/purge/batch.ts',
    from: 'AND (SELECT limit_lock_wait($3))',
    to: "AND (SELECT set_config('lock_timeout', $3::text, true)) IS NOT NULL",
    tests: ['test/faults/postgres/wire.test.ts'],
  },
  {
    id: 'commit-unseen',
    fault: 'in parallel mode COMMIT does not wait for what Redis says',
    file: 'shared/idempotency/once.ts',
    from: 'Promise.all([work(attempt.tx), throwIfSeen(sighting)])',
    to: 'Promise.all([work(attempt.tx)])',
    tests: ['test/faults/redis/parallel.test.ts'],
    name: 'still silent|not begun',
  },
  {
    id: 'replay-waits-for-ever',
    fault: 'a replay in a cold environment waits for Postgres without a limit',
    file: 'shared/postgres/pool.ts',
    from: 'await Promise.race([connecting, sleep(WARM_MS_MAX, undefined, { ref: false })]);',
    to: 'await connecting;',
    tests: ['test/faults/redis/cold.test.ts'],
    name: 'Postgres is silent',
  },
  {
    id: 'report-undoes',
    fault: 'a report that throws after COMMIT makes a failure of a success',
    file: 'shared/idempotency/middleware.ts',
    from: "    if ('response' in verdict) state.final = verdict.response;\n",
    to: '',
    tests: ['test/contract/other-stacks.test.ts'],
    name: 'report that throws',
  },
  {
    id: 'purge-overtakes-rollback',
    fault:
      'a failed statement of the purge costs its connection, and the next overtakes its rollback',
    file: 'shared/postgres/pool.ts',
    from: 'isWhole = isDefiniteFailure(error);',
    to: 'isWhole = false;',
    tests: ['test/integration/purge/sweep.test.ts'],
    name: 'behind its rollback',
  },
];
