-- What the leader's own transactions call.

-- First in each of them: the epoch row is the authority, and the share lock keeps a successor from taking office
-- between this look and the commit. The commit travels with the transaction, so the lock is short.
CREATE FUNCTION yardmaster.fence(p_epoch bigint, p_token uuid, p_term integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM yardmaster.leader l WHERE l.epoch = p_epoch AND l.token = p_token AND l.term = p_term FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'epoch % is over', p_epoch USING ERRCODE = 'YM003';
    END IF;
END $$;

-- The nodes whose slots a task takes: distinct, in byte order.
CREATE FUNCTION yardmaster.slot_nodes(node text, nodes_involved text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN node IS NULL AND nodes_involved IS NULL THEN '{}'::pg_catalog.text[]
                WHEN nodes_involved IS NULL THEN ARRAY[node]
                ELSE ARRAY(SELECT DISTINCT n COLLATE pg_catalog."C"
                             FROM pg_catalog.unnest(pg_catalog.array_append(nodes_involved, node)) n
                            WHERE n IS NOT NULL ORDER BY 1) END $$;

-- Ready tasks whose node takes none, and the first of their candidates that does. Nothing of them was sent: what runs, or may
-- have run, is not ready. At most 1,000 of a lane at a time; the next look moves the next.
CREATE FUNCTION yardmaster.tasks_to_move()
RETURNS TABLE (task_id bigint, node text, owner name, owner_oid oid, nodes text[], candidates text[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH open AS MATERIALIZED (
        SELECT n.name FROM yardmaster.node_state n WHERE n.declared AND n.fault IS NULL AND NOT n.draining
    )
    SELECT t.task_id, o.name, l.owner, l.owner_oid, yardmaster.slot_nodes(o.name, p.nodes_involved), l.candidates
      FROM yardmaster.lane l
     CROSS JOIN LATERAL (SELECT open.name FROM unnest(l.candidates) WITH ORDINALITY c(name, place) JOIN open ON open.name = c.name
                          ORDER BY c.place LIMIT 1) o
     CROSS JOIN LATERAL (SELECT s.task_id FROM yardmaster.task_state s WHERE s.lane = l.lane AND s.ready
                          ORDER BY s.queue_rank, s.task_id LIMIT 1000) t
      JOIN yardmaster.task_spec p ON p.task_id = t.task_id
     WHERE l.candidates <> '{}' AND NOT EXISTS (SELECT FROM open WHERE open.name = l.node) $$;

-- What a snapshot sees of rows that came since an earlier one: those of transactions in progress then (p_among), and those
-- begun since (p_from and later). Two branches, each a range of the index on submit_xid; with both bounds of the second given
-- the planner takes it for the short range it is. Inlined into the leader's statements.
CREATE FUNCTION yardmaster.new_jobs(p_from xid8, p_among xid8[], p_snapshot pg_snapshot) RETURNS SETOF yardmaster.job_spec
LANGUAGE sql STABLE AS $$
    SELECT * FROM yardmaster.job_spec j
     WHERE j.submit_xid >= p_from AND j.submit_xid < pg_catalog.pg_snapshot_xmax(p_snapshot)
       AND pg_catalog.pg_visible_in_snapshot(j.submit_xid, p_snapshot)
    UNION ALL
    SELECT * FROM yardmaster.job_spec j
     WHERE j.submit_xid = ANY (p_among) AND pg_catalog.pg_visible_in_snapshot(j.submit_xid, p_snapshot) $$;

-- Only tasks after a given one, for those who go through them in parts.
CREATE FUNCTION yardmaster.new_tasks(p_from xid8, p_among xid8[], p_snapshot pg_snapshot, p_after bigint)
RETURNS SETOF yardmaster.task_spec LANGUAGE sql STABLE AS $$
    SELECT * FROM yardmaster.task_spec t
     WHERE t.submit_xid >= p_from AND t.submit_xid < pg_catalog.pg_snapshot_xmax(p_snapshot) AND t.task_id > p_after
       AND pg_catalog.pg_visible_in_snapshot(t.submit_xid, p_snapshot)
    UNION ALL
    SELECT * FROM yardmaster.task_spec t
     WHERE t.submit_xid = ANY (p_among) AND t.task_id > p_after AND pg_catalog.pg_visible_in_snapshot(t.submit_xid, p_snapshot) $$;

-- The next new tasks that have not been admitted, in the order (submit_xid, task_id), behind the last one that was: each
-- branch reads its index from there on (from one bound, since a scan starts at only one), so that a chunk costs the chunk, however many went before.
CREATE FUNCTION yardmaster.next_new_tasks(p_from xid8, p_among xid8[], p_snapshot pg_snapshot, p_xid xid8, p_after bigint, p_limit bigint)
RETURNS SETOF yardmaster.task_spec LANGUAGE sql STABLE AS $$
    SELECT * FROM (
        (SELECT * FROM yardmaster.task_spec t
          WHERE (t.submit_xid, t.task_id) > (greatest(p_xid, p_from), CASE WHEN p_xid < p_from THEN '-9223372036854775808' ELSE p_after END)
            AND t.submit_xid < pg_catalog.pg_snapshot_xmax(p_snapshot)
            AND pg_catalog.pg_visible_in_snapshot(t.submit_xid, p_snapshot)
            AND (SELECT s.task_id FROM yardmaster.task_state s WHERE s.task_id = t.task_id) IS NULL
          ORDER BY t.submit_xid, t.task_id LIMIT p_limit)
        UNION ALL
        (SELECT t.* FROM pg_catalog.unnest(p_among) AS among(xid) CROSS JOIN LATERAL (
                SELECT * FROM yardmaster.task_spec t
                 WHERE t.submit_xid = among.xid AND (t.submit_xid, t.task_id) > (p_xid, p_after)
                   AND pg_catalog.pg_visible_in_snapshot(t.submit_xid, p_snapshot)
                   AND (SELECT s.task_id FROM yardmaster.task_state s WHERE s.task_id = t.task_id) IS NULL
                 ORDER BY t.submit_xid, t.task_id LIMIT p_limit) t)) t
     ORDER BY t.submit_xid, t.task_id LIMIT p_limit $$;

CREATE FUNCTION yardmaster.new_edges(p_from xid8, p_among xid8[], p_snapshot pg_snapshot) RETURNS SETOF yardmaster.task_depend
LANGUAGE sql STABLE AS $$
    SELECT * FROM yardmaster.task_depend e
     WHERE e.submit_xid >= p_from AND e.submit_xid < pg_catalog.pg_snapshot_xmax(p_snapshot)
       AND pg_catalog.pg_visible_in_snapshot(e.submit_xid, p_snapshot)
    UNION ALL
    SELECT * FROM yardmaster.task_depend e
     WHERE e.submit_xid = ANY (p_among) AND pg_catalog.pg_visible_in_snapshot(e.submit_xid, p_snapshot) $$;

CREATE FUNCTION yardmaster.new_requests(p_from xid8, p_among xid8[], p_snapshot pg_snapshot) RETURNS SETOF yardmaster.request
LANGUAGE sql STABLE AS $$
    SELECT * FROM yardmaster.request r
     WHERE r.submit_xid >= p_from AND r.submit_xid < pg_catalog.pg_snapshot_xmax(p_snapshot)
       AND pg_catalog.pg_visible_in_snapshot(r.submit_xid, p_snapshot)
    UNION ALL
    SELECT * FROM yardmaster.request r
     WHERE r.submit_xid = ANY (p_among) AND pg_catalog.pg_visible_in_snapshot(r.submit_xid, p_snapshot) $$;
