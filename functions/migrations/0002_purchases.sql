CREATE TABLE products (
  sku   text   PRIMARY KEY,
  coins bigint NOT NULL CHECK (coins > 0)
);
INSERT INTO products VALUES ('potion', 5), ('shield', 80), ('sword', 100);

CREATE TABLE purchases (
  id           uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  user_id      text        NOT NULL REFERENCES players,
  sku          text        NOT NULL REFERENCES products,
  quantity     int         NOT NULL CHECK (quantity > 0),
  coins        bigint      NOT NULL,
  purchased_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX idx_purchases_user ON purchases (user_id);

DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'backstop_api') THEN
    GRANT SELECT ON products TO backstop_api;
    GRANT SELECT, INSERT ON purchases TO backstop_api;
  END IF;
END
$$;
