-- The service's two database roles. Time-outs stand on the role, since RDS Proxy
-- refuses them as start-up parameters and pins a connection that says SET. They
-- take effect when the role logs in.
--
-- Roles belong to the whole server, so another database may have made them. A
-- user who may not create roles (a developer with a database of their own) goes
-- on alone; the service checks at start that its role has the time-outs.
DO $$
BEGIN
  IF NOT (SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user) THEN
    RAISE WARNING 'backstop: % may not create roles: backstop_api and backstop_purge were left out', current_user;
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'backstop_api') THEN
    CREATE ROLE backstop_api LOGIN;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'backstop_purge') THEN
    CREATE ROLE backstop_purge LOGIN;
  END IF;

  -- A statement may take as long as the longest request, which the HTTP API ends
  -- after 30 s at the latest.
  ALTER ROLE backstop_api SET statement_timeout = '28s';
  -- The owner of a claim that was frozen or lost holds it until this ends the
  -- session; without it a retry would hear ABORTED for ever.
  ALTER ROLE backstop_api SET idle_in_transaction_session_timeout = '28s';
  -- A peer that vanished without a word is noticed after 10 + 3 * 5 s.
  ALTER ROLE backstop_api SET tcp_keepalives_idle = '10';
  ALTER ROLE backstop_api SET tcp_keepalives_interval = '5';
  ALTER ROLE backstop_api SET tcp_keepalives_count = '3';
  -- One that vanished while its statement waits for a lock, after 5 s.
  ALTER ROLE backstop_api SET client_connection_check_interval = '5s';

  ALTER ROLE backstop_purge SET statement_timeout = '60s';
  ALTER ROLE backstop_purge SET idle_in_transaction_session_timeout = '28s';
  ALTER ROLE backstop_purge SET tcp_keepalives_idle = '10';
  ALTER ROLE backstop_purge SET tcp_keepalives_interval = '5';
  ALTER ROLE backstop_purge SET tcp_keepalives_count = '3';

  GRANT SELECT, INSERT ON player_mutation_idempotency TO backstop_api;
  GRANT SELECT, INSERT, UPDATE ON players TO backstop_api;
  -- FOR UPDATE needs UPDATE on one column. Nothing else, and on nothing else.
  GRANT SELECT, DELETE, UPDATE (created_at) ON player_mutation_idempotency TO backstop_purge;
END
$$;
