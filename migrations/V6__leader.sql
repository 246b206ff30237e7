-- What the leader's own transactions call.

-- First in each of them: the epoch row is the authority, and the share lock keeps a successor from taking office
-- between this look and the commit. The commit travels with the transaction, so the lock is short.
CREATE FUNCTION yardmaster.fence(p_epoch bigint, p_token uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM yardmaster.leader l WHERE l.epoch = p_epoch AND l.token = p_token FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'epoch % is over', p_epoch USING ERRCODE = 'YM003';
    END IF;
END $$;

REVOKE EXECUTE ON FUNCTION yardmaster.fence(bigint, uuid) FROM PUBLIC;

-- The nodes whose slots a task takes: distinct, in byte order.
CREATE FUNCTION yardmaster.slot_nodes(node text, nodes_involved text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN node IS NULL AND nodes_involved IS NULL THEN '{}'::pg_catalog.text[]
                WHEN nodes_involved IS NULL THEN ARRAY[node]
                ELSE ARRAY(SELECT DISTINCT n COLLATE pg_catalog."C"
                             FROM pg_catalog.unnest(pg_catalog.array_append(nodes_involved, node)) n
                            WHERE n IS NOT NULL ORDER BY 1) END $$;
