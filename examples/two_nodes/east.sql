-- What an administrator prepares on node "east": a role that owns tasks and may make scratch schemas, and the data.
CREATE ROLE app LOGIN;
GRANT CREATE ON DATABASE {database} TO app;
CREATE SCHEMA shop AUTHORIZATION app;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, region text NOT NULL, amount numeric NOT NULL, placed_at timestamptz NOT NULL);
ALTER TABLE shop.orders OWNER TO app;
INSERT INTO shop.orders
SELECT i, CASE WHEN i % 5 < 2 THEN 'west' ELSE 'east' END, i % 1000 / 10.0, timestamptz '2026-01-01 00:00+00' + i * interval '1 minute'
  FROM generate_series(1, 50000) i;
