-- Durable records: a claim with a lease, and the response, in one row. For answers
-- that must be replayed whether or not Redis remembers them.
CREATE TABLE idempotency_records (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  account_id       text        NOT NULL,
  -- SHA-256 of method and route template, and of the key: of one length, whatever
  -- they are, and no key stands here to be read.
  endpoint_hash    bytea       NOT NULL CHECK (octet_length(endpoint_hash) = 32),
  key_hash         bytea       NOT NULL CHECK (octet_length(key_hash) = 32),
  fingerprint      text        NOT NULL,
  status           text        NOT NULL CHECK (status IN ('in_progress', 'completed')),
  -- A new token with each acquisition; it stays when completed, as the proof of whose
  -- COMMIT it was.
  lease_owner      uuid        NOT NULL,
  -- NULL means locked, and never abandoned.
  lease_expires_at timestamptz,
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  completed_at     timestamptz,
  -- Bytes and not jsonb, which would reorder the members of what must be repeated
  -- byte for byte.
  response         bytea,
  UNIQUE (account_id, endpoint_hash, key_hash),
  CHECK ((status = 'completed') = (completed_at IS NOT NULL)),
  CHECK ((status = 'completed') = (response IS NOT NULL))
);

-- For the purge. They cost a claim and its publish 1.1 times the CPU together; without
-- them each batch reads the whole table (3 ms against 37 at 105,000 records and 324 at
-- a million), and each look for abandoned claims as well (0.2 ms against 25 and 241).
CREATE INDEX idx_records_completed_at ON idempotency_records (completed_at)
  WHERE completed_at IS NOT NULL;
CREATE INDEX idx_records_in_progress ON idempotency_records (created_at)
  WHERE status = 'in_progress';

-- The claim, in one statement and one round trip. It first looks without taking any
-- lock, so that a replay never waits for anybody's publish. `outcome` is
--   claimed      ours now, by insert, by steal, or because it was ours already
--   completed    `response` is the answer
--   mismatch     the key stands there with another request, of whatever state
--   unreadable   completed by a release whose fingerprints cannot be compared with ours
--   leased       somebody works on it; lease_left_ms is NULL where the lease is missing
CREATE FUNCTION claim_record(
  p_account text, p_endpoint_hash bytea, p_key_hash bytea, p_fingerprint text,
  p_owner uuid, p_lease_ms float8, p_deadline timestamptz,
  OUT outcome text, OUT id bigint, OUT response bytea, OUT completed_at_ms float8,
  OUT lease_left_ms float8
) LANGUAGE plpgsql AS $$
DECLARE
  left_ms float8 := extract(epoch FROM p_deadline - clock_timestamp()) * 1000;
  lease   interval := p_lease_ms * interval '1 millisecond';
  found_record idempotency_records;
  is_comparable boolean;
BEGIN
  IF left_ms <= 0 THEN
    RAISE EXCEPTION 'claim_record: the deadline of this request has passed' USING ERRCODE = 'IDM02';
  END IF;
  PERFORM set_config('lock_timeout', greatest(1, floor(left_ms))::bigint::text, true);
  -- The row may vanish (released, purged) or be stolen between the look and the
  -- deed. Whoever was faster has moved it on, so a few rounds are enough.
  FOR round IN 1..5 LOOP
    SELECT * INTO found_record FROM idempotency_records r
      WHERE r.account_id = p_account AND r.endpoint_hash = p_endpoint_hash
        AND r.key_hash = p_key_hash;
    IF NOT FOUND THEN
      INSERT INTO idempotency_records AS r
        (account_id, endpoint_hash, key_hash, fingerprint, status, lease_owner, lease_expires_at)
        VALUES (p_account, p_endpoint_hash, p_key_hash, p_fingerprint, 'in_progress', p_owner,
                clock_timestamp() + lease)
        ON CONFLICT DO NOTHING
        RETURNING r.id INTO id;
      IF FOUND THEN outcome := 'claimed'; RETURN; END IF;
      CONTINUE;
    END IF;

    id := found_record.id;
    is_comparable :=
      split_part(found_record.fingerprint, ':', 1) = split_part(p_fingerprint, ':', 1);
    IF is_comparable AND found_record.fingerprint <> p_fingerprint THEN
      outcome := 'mismatch';
      RETURN;
    END IF;
    IF found_record.status = 'completed' THEN
      IF NOT is_comparable THEN outcome := 'unreadable'; RETURN; END IF;
      outcome := 'completed';
      response := found_record.response;
      completed_at_ms := extract(epoch FROM found_record.completed_at) * 1000;
      RETURN;
    END IF;
    IF found_record.lease_owner <> p_owner
       AND (found_record.lease_expires_at IS NULL
            OR found_record.lease_expires_at >= clock_timestamp()) THEN
      outcome := 'leased';
      lease_left_ms := extract(epoch FROM found_record.lease_expires_at - clock_timestamp()) * 1000;
      RETURN;
    END IF;

    -- Ours already (the transaction is tried again), or abandoned, whatever the version of
    -- its fingerprint: it never committed, so nothing is lost. Compare-and-swap on the
    -- owner, and every condition again on the row itself: its owner may have renewed or
    -- published while this waited for it.
    UPDATE idempotency_records r
       SET lease_owner = p_owner, lease_expires_at = clock_timestamp() + lease,
           fingerprint = p_fingerprint
     WHERE r.id = found_record.id AND r.status = 'in_progress'
       AND r.lease_owner = found_record.lease_owner
       AND (r.lease_owner = p_owner OR r.lease_expires_at < clock_timestamp());
    IF FOUND THEN outcome := 'claimed'; RETURN; END IF;
  END LOOP;
  outcome := 'leased';
END
$$;

-- The last statement of the mutation's own transaction. It raises when the record is
-- no longer ours (IDM03), so that a COMMIT sent behind it becomes a ROLLBACK: the
-- guard that keeps effects at one.
--
-- The work before it may have said SET LOCAL ROLE or SET LOCAL search_path. So it runs with its
-- owner's rights and a search_path of its own (below), and anybody may call it: what counts is
-- that the role that logged in (session_user, which SET ROLE does not change) may update the
-- table, as it must to claim. And nobody publishes without the claim's random token.
CREATE FUNCTION publish_record(p_id bigint, p_owner uuid, p_response bytea)
RETURNS float8 LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  published_at timestamptz;
BEGIN
  IF NOT has_table_privilege(session_user, 'idempotency_records', 'UPDATE') THEN
    RAISE EXCEPTION 'publish_record: the role % has no right to update idempotency_records',
      session_user;
  END IF;
  UPDATE idempotency_records
     SET status = 'completed', completed_at = clock_timestamp(), response = p_response,
         lease_expires_at = NULL
   WHERE id = p_id AND lease_owner = p_owner AND status = 'in_progress'
   RETURNING completed_at INTO published_at;
  IF published_at IS NULL THEN
    RAISE EXCEPTION 'publish_record: this record was taken over' USING ERRCODE = 'IDM03';
  END IF;
  RETURN extract(epoch FROM published_at) * 1000;
END
$$;
GRANT EXECUTE ON FUNCTION publish_record(bigint, uuid, bytea) TO PUBLIC;

-- The schema that the table is in, whichever that is. pg_temp last: named nowhere, it would be
-- searched first, and a temporary table would stand in for ours.
DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION publish_record(bigint, uuid, bytea) SET search_path = %s, pg_temp',
    (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'idempotency_records'::regclass));
END
$$;
