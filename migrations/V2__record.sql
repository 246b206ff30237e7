-- Completion records: the one table that decides what happened. The same design serves home and every other node.
--
-- A transactional attempt inserts its record last, in its own transaction: effects and record are one commit.
-- Cancel, recovery and takeover insert 'revoked' under the same key before they tell anyone. Whoever inserts
-- second waits for the first and then learns the truth. Rows are never updated.
CREATE TYPE yardmaster.record_kind AS ENUM ('committed', 'revoked');
CREATE TABLE yardmaster.record (
    task_id    bigint NOT NULL,
    task_key   uuid NOT NULL,
    series     integer NOT NULL,
    kind       yardmaster.record_kind NOT NULL,
    attempt    integer NOT NULL,
    epoch      bigint NOT NULL,
    token      uuid NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task_id, task_key, series)
);
-- For their removal by age; next to nothing to keep up, since rows come in order of time.
CREATE INDEX record_written_at ON yardmaster.record USING brin (written_at);

-- Two independent 64-byte keys (one SHA-256 block each): a ticket is sha256(outer || sha256(inner || text)).
-- The site names this very database, wherever it moves: an attempt's outcome is asked of the site where it ran.
CREATE TABLE yardmaster.secret (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    site      uuid NOT NULL DEFAULT gen_random_uuid(),
    inner_key bytea NOT NULL CHECK (length(inner_key) = 64),
    outer_key bytea NOT NULL CHECK (length(outer_key) = 64)
);
INSERT INTO yardmaster.secret (inner_key, outer_key)
SELECT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
    || sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
       sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
    || sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- Called last in an attempt's own transaction, in the owner's session, in a message of its own.
-- Returns whether a record was written: false when the transaction has no xid, hence wrote nothing.
-- A unique violation means that the attempt was revoked (the caller then reads the record, which decides).
-- The ticket binds task, series, attempt and owner; without it nobody can occupy anybody's key.
CREATE FUNCTION yardmaster.complete(p_task_id bigint, p_task_key uuid, p_series integer, p_attempt integer,
                                    p_epoch bigint, p_token uuid, p_ticket bytea)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, yardmaster, pg_temp AS $$
BEGIN
    IF pg_catalog.pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN false;
    END IF;
    IF p_ticket IS DISTINCT FROM (
        SELECT sha256(s.outer_key || sha256(s.inner_key || convert_to(
                   concat_ws('/', p_task_id, p_task_key, p_series, p_attempt, session_user), 'UTF8')))
          FROM yardmaster.secret s)
    THEN
        RAISE EXCEPTION 'not the ticket of this attempt' USING ERRCODE = 'YM001';
    END IF;
    INSERT INTO yardmaster.record (task_id, task_key, series, kind, attempt, epoch, token)
    VALUES (p_task_id, p_task_key, p_series, 'committed', p_attempt, p_epoch, p_token);
    RETURN true;
END $$;
