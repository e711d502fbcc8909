CREATE TABLE players (
  user_id      text   PRIMARY KEY,
  -- 2^53 - 1: the largest integer that a JSON number carries without loss.
  coins        bigint NOT NULL DEFAULT 0 CHECK (coins BETWEEN 0 AND 9007199254740991),
  data_version bigint NOT NULL DEFAULT 1
);

-- The library's migrations have made the role, unless whoever runs them may make none.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'backstop_api') THEN
    GRANT SELECT, INSERT, UPDATE ON players TO backstop_api;
  END IF;
END
$$;
