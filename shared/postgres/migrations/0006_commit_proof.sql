-- The claim answers with its time as a timestamptz, so that one expression makes the text by
-- which a lost COMMIT is recognised, here and when the marker is looked up: the row's number
-- (xmin) alone does not do, since a restored or promoted server gives the same numbers out again.
--
-- Never call it behind a savepoint, and never give it an EXCEPTION clause: xmin would be the
-- subtransaction's, and no commit would be recognised any more.
--
-- created_at_ms stays for the release before, which runs while this one is being deployed.
DROP FUNCTION claim_marker(text, text, timestamptz);

CREATE FUNCTION claim_marker(
  p_user text, p_request text, p_deadline timestamptz,
  OUT created_at_ms float8, OUT xid text, OUT claimed_at timestamptz
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
  created_at_ms := extract(epoch FROM claimed_at) * 1000;
END
$$;

-- Where EXECUTE is no longer everybody's (ALTER DEFAULT PRIVILEGES), the role needs it by name.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'backstop_api') THEN
    GRANT EXECUTE ON FUNCTION claim_marker(text, text, timestamptz) TO backstop_api;
  END IF;
END
$$;
