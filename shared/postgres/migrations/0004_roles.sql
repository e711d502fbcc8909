-- Two database roles, for the service and for its purge. Time-outs stand on the role,
-- since RDS Proxy refuses them as start-up parameters and pins a connection that says
-- SET. They take effect when the role logs in.
--
-- Roles belong to the whole server, so another user may have made them, who alone may
-- alter them (whom else differs from version to version: so it is tried). And a user who
-- may not create roles (a developer with a database of their own) goes on alone. Neither
-- fails the migration: a WARNING names what is left to say, and the service refuses at
-- its first connection a role that has no time-outs.
DO $$
DECLARE
  settings CONSTANT text[] := ARRAY[
    -- A statement may take as long as the longest request, which the HTTP API ends
    -- after 30 s at the latest.
    'backstop_api statement_timeout 28s',
    -- The owner of a claim that was frozen or lost holds it until this ends the
    -- session; without it a retry would hear ABORTED for ever.
    'backstop_api idle_in_transaction_session_timeout 28s',
    -- A peer that vanished without a word is noticed after 10 + 3 * 5 s.
    'backstop_api tcp_keepalives_idle 10',
    'backstop_api tcp_keepalives_interval 5',
    'backstop_api tcp_keepalives_count 3',
    -- One that vanished while its statement waits for a lock, after 5 s.
    'backstop_api client_connection_check_interval 5s',
    'backstop_purge statement_timeout 60s',
    'backstop_purge idle_in_transaction_session_timeout 28s',
    'backstop_purge tcp_keepalives_idle 10',
    'backstop_purge tcp_keepalives_interval 5',
    'backstop_purge tcp_keepalives_count 3',
    -- A statement that finds a table locked (ACCESS EXCLUSIVE: an ALTER TABLE, a VACUUM FULL)
    -- gives up and lets the other tables have their turn.
    'backstop_purge lock_timeout 5s'];
  login text;
  entry text;
  setting text[];
  is_foreign boolean;
  owed text[];
BEGIN
  FOREACH login IN ARRAY ARRAY['backstop_api', 'backstop_purge'] LOOP
    BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = login) THEN
        EXECUTE format('CREATE ROLE %I LOGIN', login);
      END IF;
    EXCEPTION
      WHEN duplicate_object THEN NULL; -- Another migration made it meanwhile.
      WHEN insufficient_privilege THEN
        RAISE WARNING 'backstop: % may not create roles, so % was left out. Create it and migrate an empty database, or grant your own role what docs/database.md says.', current_user, login;
        CONTINUE;
    END;
    owed := '{}';
    is_foreign := false;
    FOREACH entry IN ARRAY settings LOOP
      setting := string_to_array(entry, ' ');
      CONTINUE WHEN setting[1] <> login;
      BEGIN
        EXECUTE format('ALTER ROLE %I SET %I = %L', login, setting[2], setting[3]);
      EXCEPTION WHEN insufficient_privilege THEN
        is_foreign := true;
        -- Whatever value its owner chose is as good, unless it is none.
        IF NOT EXISTS (
          SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) chosen
           WHERE r.rolname = login AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
             AND chosen LIKE setting[2] || '=%' AND chosen !~ '=0[a-z]*$'
        ) THEN
          owed := owed || format('ALTER ROLE %I SET %I = %L;', login, setting[2], setting[3]);
        END IF;
      END;
    END LOOP;
    IF owed <> '{}' THEN
      RAISE WARNING 'backstop: % may not alter the role %, which somebody else made and which lacks settings. Its owner must say: %', current_user, login, array_to_string(owed, ' ');
    ELSIF is_foreign THEN
      RAISE WARNING 'backstop: the role % was made by somebody else and is fit as it is', login;
    END IF;
  END LOOP;
END
$$;

DO $$
DECLARE
  who       text;
  may_claim boolean;
BEGIN
  -- Where default privileges revoke EXECUTE from PUBLIC, the roles have it only if it is said.
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'backstop_api') THEN
    GRANT SELECT, INSERT ON player_mutation_idempotency TO backstop_api;
    GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records TO backstop_api;
    GRANT EXECUTE ON FUNCTION
      enter_transaction(timestamptz),
      claim_marker(text, text, timestamptz),
      claim_record(text, bytea, bytea, text, uuid, float8, timestamptz),
      publish_record(bigint, uuid, bytea)
      TO backstop_api;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'backstop_purge') THEN
    -- FOR UPDATE needs UPDATE on one column. Nothing else, and on nothing else.
    GRANT SELECT, DELETE, UPDATE (created_at) ON player_mutation_idempotency TO backstop_purge;
    GRANT SELECT, DELETE, UPDATE (created_at) ON idempotency_records TO backstop_purge;
  END IF;

  -- Whoever may claim may promise, and whoever claims or deletes may read; nobody else, and nobody
  -- may write. Roles of your own are among them, where default privileges have let them in.
  FOR who, may_claim IN
    SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
           bool_or(privilege_type = 'INSERT')
      FROM pg_class, aclexplode(relacl)
     WHERE oid IN ('player_mutation_idempotency'::regclass, 'idempotency_records'::regclass)
       AND privilege_type IN ('INSERT', 'DELETE') AND grantee <> relowner
     GROUP BY grantee
  LOOP
    EXECUTE format('GRANT SELECT ON idempotency_retentions TO %s', who);
    EXECUTE format('GRANT EXECUTE ON FUNCTION retention_holds(text, bigint), limit_lock_wait(float8) TO %s', who);
    IF may_claim THEN
      EXECUTE format('GRANT EXECUTE ON FUNCTION promise_retention(text, bigint) TO %s', who);
    END IF;
  END LOOP;
END
$$;
