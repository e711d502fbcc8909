-- How long a replay is caught, table by table: the longest retention that any function has ever
-- promised here. The purge deletes nothing that is younger, whatever its own settings say, and
-- learns from the rows which tables expire. 0: nobody has promised anything yet.
CREATE TABLE idempotency_retentions (
  table_name   text   PRIMARY KEY,
  -- A hundred years at the most: more was not meant in milliseconds.
  retention_ms bigint NOT NULL CHECK (retention_ms BETWEEN 0 AND 3155760000000)
);
INSERT INTO idempotency_retentions VALUES
  ('player_mutation_idempotency', 0),
  ('idempotency_records', 0);

-- In the greeting of each connection that claims. It raises and never lowers: lowering is an UPDATE
-- of the owner's (docs/purge.md). Nearly always it looks and writes nothing, and nobody waits.
--
-- Whoever does raise waits for the deletes that go by the older retention, and retention_holds
-- refuses all later ones. So when this has committed, every row that is still there is kept for
-- the new retention, and the replay of an old record may promise it too.
--
-- A body that is bound to its table when it is made: neither a caller's search_path nor a renamed
-- schema can lead it elsewhere. And it waits no longer than a greeting may take.
--
-- Answers what is promised by now; NULL where the table has no row.
CREATE FUNCTION promise_retention(p_table text, p_retention_ms bigint) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '800ms'
BEGIN ATOMIC
  SELECT pg_advisory_xact_lock(4702111234474983746) FROM idempotency_retentions
   WHERE table_name = p_table AND retention_ms < p_retention_ms;
  UPDATE idempotency_retentions SET retention_ms = p_retention_ms
   WHERE table_name = p_table AND retention_ms < p_retention_ms;
  SELECT retention_ms FROM idempotency_retentions WHERE table_name = p_table;
END;
-- Whoever may claim may promise; 0004_roles.sql says so.
REVOKE ALL ON FUNCTION promise_retention(text, bigint) FROM PUBLIC;

-- In each DELETE of the purge, with the retention that it goes by. False while somebody raises a
-- retention; an error when it was raised since the purge read it. A function reads what has been
-- committed by now, where the DELETE itself would see what was there when it began.
CREATE FUNCTION retention_holds(p_table text, p_retention_ms bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  kept_ms bigint;
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(4702111234474983746) THEN
    RETURN false;
  END IF;
  SELECT retention_ms INTO kept_ms FROM idempotency_retentions WHERE table_name = p_table;
  IF kept_ms IS NULL OR kept_ms > p_retention_ms THEN
    RAISE EXCEPTION 'retention_holds: this purge of % goes by a retention of % ms, and by now idempotency_retentions says %. Nothing more is deleted by the old one; the next run goes by the new one',
      p_table, p_retention_ms, kept_ms;
  END IF;
  RETURN true;
END
$$;
