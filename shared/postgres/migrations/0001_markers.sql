-- The marker (L2). Its existence is all it says: this principal has used up this
-- key. It holds no response; that is what Redis is for.
--
-- Not partitioned by created_at: a partition key must be part of the primary
-- key, and a key with created_at in it is no longer unique.
CREATE TABLE player_mutation_idempotency (
  user_id    text        NOT NULL,
  request_id text        NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (user_id, request_id)
) WITH (
  -- Autovacuum for a table that is emptied as fast as it is filled. The usual settings
  -- wait for a fifth of the table: at 20,000 claims a second and 65 minutes of rows, 13
  -- minutes of deletes. Until a vacuum has been there, the first look of each purge
  -- walks the index entries of all of them, and new pages are not marked all-visible,
  -- which the look ahead of each batch is quicker with.
  --
  -- Every three minutes at that rate. Each vacuum reads both indexes from end to end,
  -- so more often would cost more than the dead entries do.
  autovacuum_vacuum_scale_factor = 0.05,
  -- The usual 200 lets a vacuum dirty 40 MB a second. Nearly every page of the primary
  -- key has a dead entry on it (6 GB, in no order of time), so it would take longer
  -- than the next three minutes. This is 400 MB a second.
  autovacuum_vacuum_cost_limit = 2000,
  -- The statistics are of times that pass by: an hour-old histogram knows none of the
  -- rows that are there now.
  autovacuum_analyze_scale_factor = 0.05
);

-- For the purge: without it each batch is a sequential scan and a sort. It costs
-- a claim 1.07 times the CPU and 1.16 times the WAL.
CREATE INDEX idx_pmi_created_at ON player_mutation_idempotency (created_at);

-- The first thing in every transaction of ours, whatever the store: makes sure that
-- it is one, and that there is time left for it.
--   IDM02  the request's deadline has passed
--
-- p_deadline is on this server's clock. A Lambda that was frozen and thaws after
-- the purge must not claim anew.
CREATE FUNCTION enter_transaction(p_deadline timestamptz) RETURNS xid8 LANGUAGE plpgsql AS $$
DECLARE
  left_ms float8 := extract(epoch FROM p_deadline - clock_timestamp()) * 1000;
BEGIN
  -- The client's BEGIN says DEFERRABLE, which means nothing in READ COMMITTED and
  -- is off outside a transaction block. If it is off, that BEGIN failed, and each
  -- statement pipelined behind it would commit by itself. Ending this backend is
  -- the one thing that stops them all.
  IF current_setting('transaction_deferrable') <> 'on' THEN
    PERFORM pg_terminate_backend(pg_backend_pid());
    RAISE EXCEPTION 'enter_transaction: BEGIN has failed, so this is not a transaction';
  END IF;
  IF left_ms <= 0 THEN
    RAISE EXCEPTION 'enter_transaction: the deadline of this request has passed'
      USING ERRCODE = 'IDM02';
  END IF;
  -- 0 would mean: no limit. Set in here because a SET of the client's would pin
  -- the connection in RDS Proxy.
  PERFORM set_config('lock_timeout', greatest(1, floor(left_ms))::bigint::text, true);
  RETURN pg_current_xact_id();
END
$$;

-- How long the rest of a transaction waits for any one lock. In a function because RDS
-- Proxy pins a connection that says set_config (or SET) itself.
CREATE FUNCTION limit_lock_wait(p_ms float8) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  -- 0 would mean: no limit.
  PERFORM set_config('lock_timeout', greatest(1, floor(p_ms))::bigint::text, true);
  RETURN true;
END
$$;

-- Step 0 of every mutation of the marker store, in the mutation's own transaction.
--
-- It answers only when the claim is new. Otherwise it raises, so that whatever
-- the client has pipelined behind it fails with 25P02 without running:
--   IDM01  the key was used up before
--   IDM02  the request's deadline has passed
--   55P03  another transaction holds the claim, and it did not end in time
--
-- It answers with the claim's time as a timestamptz, so that one expression makes the text by
-- which a lost COMMIT is recognised, here and when the marker is looked up: the row's number
-- (xmin) alone does not do, since a restored or promoted server gives the same numbers out again.
--
-- Never call it behind a savepoint, and never give it an EXCEPTION clause: xmin would be the
-- subtransaction's, and no commit would be recognised any more.
CREATE FUNCTION claim_marker(
  p_user text, p_request text, p_deadline timestamptz,
  OUT xid text, OUT claimed_at timestamptz
) LANGUAGE plpgsql AS $$
BEGIN
  xid := enter_transaction(p_deadline)::text;
  INSERT INTO player_mutation_idempotency AS m (user_id, request_id)
    VALUES (p_user, p_request)
    ON CONFLICT DO NOTHING
    RETURNING m.created_at INTO claimed_at;
  IF claimed_at IS NULL THEN
    RAISE EXCEPTION 'claim_marker: this key was used before' USING ERRCODE = 'IDM01';
  END IF;
END
$$;
