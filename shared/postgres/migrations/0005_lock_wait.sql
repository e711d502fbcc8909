-- How long the rest of a transaction waits for any one lock. In a function because RDS
-- Proxy pins a connection that says set_config (or SET) itself.
CREATE FUNCTION limit_lock_wait(p_ms float8) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  -- 0 would mean: no limit.
  PERFORM set_config('lock_timeout', greatest(1, floor(p_ms))::bigint::text, true);
  RETURN true;
END
$$;
