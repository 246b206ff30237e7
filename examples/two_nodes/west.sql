-- What an administrator prepares on node "west": the same without the data, and the way to east.
CREATE ROLE app LOGIN;
GRANT CREATE ON DATABASE {database} TO app;
CREATE SCHEMA shop AUTHORIZATION app;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, region text NOT NULL, amount numeric NOT NULL, placed_at timestamptz NOT NULL);
ALTER TABLE shop.orders OWNER TO app;
CREATE EXTENSION postgres_fdw;
CREATE SERVER east FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{host}', port '{port}', dbname '{east}', fetch_size '10000');
-- East trusts its own: no password is needed there, which only a superuser may say.
CREATE USER MAPPING FOR app SERVER east OPTIONS (user 'app', password_required 'false');
GRANT USAGE ON FOREIGN SERVER east TO app;
