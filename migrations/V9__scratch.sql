-- Scratch schemas: a job that asks for one has it in each database in which its tasks run, owned by the tasks' owner, first
-- in their search_path, and dropped by clean-up when the job has ended.
--
-- A row is committed before its schema is made and deleted after it is seen gone, so whatever dies in between, clean-up knows
-- what there may be. Written by the leader alone, in fenced transactions.
CREATE TABLE yardmaster.scratch_state (
    scratch_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id         bigint NOT NULL,
    node           text NOT NULL,                  -- under which name the database was first used; '' is home
    site           uuid,                           -- the database; NULL is home
    owner          name NOT NULL,
    owner_oid      oid NOT NULL,                   -- at home
    schema_name    name NOT NULL,
    keep           boolean NOT NULL DEFAULT false, -- the job's clean-up policy is 'never'
    recorded_at    timestamptz NOT NULL DEFAULT now(),
    dropping_since timestamptz,                    -- NULL: in use, or kept
    tries          integer NOT NULL DEFAULT 0,
    next_try       timestamptz,
    reason         text                            -- why the last try came to nothing
);
-- What is being dropped is not used again: a job that is retried meanwhile gets a schema under another name.
CREATE UNIQUE INDEX scratch_state_in_use ON yardmaster.scratch_state
    (job_id, owner_oid, (coalesce(site, '00000000-0000-0000-0000-000000000000'))) WHERE dropping_since IS NULL;
CREATE INDEX scratch_state_dropping ON yardmaster.scratch_state (next_try) WHERE dropping_since IS NOT NULL;
CREATE INDEX scratch_state_name ON yardmaster.scratch_state (schema_name);

CREATE VIEW yardmaster.scratch WITH (security_barrier) AS
SELECT s.job_id, s.node, s.owner, s.schema_name,
       CASE WHEN s.dropping_since IS NOT NULL THEN 'dropping' WHEN j.finished_at IS NULL AND j.job_id IS NOT NULL THEN 'in use' ELSE 'kept' END AS state,
       CASE WHEN s.dropping_since IS NOT NULL THEN coalesce(s.reason, 'dropped next')
            WHEN j.job_id IS NOT NULL AND j.finished_at IS NULL THEN format('job %s has not ended', s.job_id)
            WHEN s.keep THEN 'the clean-up policy of the job is never'
            WHEN p.cleanup = 'on_success' AND j.status <> 'finished' THEN format('job %s is %s, and its clean-up policy is on_success', s.job_id, j.status)
            WHEN p.cleanup_delay IS NOT NULL THEN format('to be dropped at %s', j.finished_at + p.cleanup_delay)
            ELSE 'dropped next' END AS reason,
       coalesce(s.dropping_since, j.finished_at, s.recorded_at) AS since, s.tries, s.next_try
  FROM yardmaster.scratch_state s
  LEFT JOIN yardmaster.job_state j ON j.job_id = s.job_id
  LEFT JOIN yardmaster.job_spec p ON p.job_id = s.job_id
 WHERE (SELECT yardmaster.sees_all()) OR pg_has_role(s.owner_oid, 'MEMBER');

-- What the names of this installation's schemas begin with, on whatever node.
CREATE FUNCTION yardmaster.scratch_prefix() RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('yardmaster_%s_', left(replace(s.site::text, '-', ''), 12)) FROM yardmaster.secret s $$;

-- Records that an attempt is about to use its job's schema in a database, and names it; NULL if the attempt is not alive. One
-- owner's schemas of one job have one name in all databases. It ends in what nobody can guess: a name that was dropped, or is
-- to come, cannot be occupied by others.
CREATE FUNCTION yardmaster.scratch_use(p_epoch bigint, p_token uuid, p_term integer, p_task_id bigint, p_attempt integer,
    p_node text, p_site uuid) RETURNS name LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    task record;
    its_name name;
BEGIN
    PERFORM yardmaster.fence(p_epoch, p_token, p_term);
    SELECT s.job_id, t.owner, t.owner_oid, j.cleanup = 'never' AS keep INTO task
      FROM yardmaster.task_state s JOIN yardmaster.task_spec t ON t.task_id = s.task_id JOIN yardmaster.job_spec j ON j.job_id = s.job_id
     WHERE s.task_id = p_task_id AND s.attempt = p_attempt AND s.status IN ('running', 'cancelling');
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Locked, so that a clean-up that is about to begin is waited for, and then not used.
    SELECT s.schema_name INTO its_name FROM yardmaster.scratch_state s
     WHERE s.job_id = task.job_id AND s.owner_oid = task.owner_oid AND s.site IS NOT DISTINCT FROM p_site AND s.dropping_since IS NULL
       FOR SHARE;
    IF FOUND THEN
        RETURN its_name;
    END IF;
    SELECT s.schema_name INTO its_name FROM yardmaster.scratch_state s
     WHERE s.job_id = task.job_id AND s.owner_oid = task.owner_oid AND s.dropping_since IS NULL LIMIT 1;
    its_name := coalesce(its_name, yardmaster.scratch_prefix() || task.job_id || '_' || left(gen_random_uuid()::text, 8));
    INSERT INTO yardmaster.scratch_state (job_id, node, site, owner, owner_oid, schema_name, keep)
    VALUES (task.job_id, p_node, p_site, task.owner, task.owner_oid, its_name, coalesce(task.keep, false));
    RETURN its_name;
END $$;

-- Decides which schemas are dropped, and answers those whose turn it is, but for those that are under way.
CREATE FUNCTION yardmaster.scratch_due(p_epoch bigint, p_token uuid, p_term integer, p_under_way bigint[])
RETURNS SETOF yardmaster.scratch_state LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM yardmaster.fence(p_epoch, p_token, p_term);
    -- The job's row is locked: a retry that comes meanwhile waits, and then gets a schema of its own. One that came before is
    -- seen, since a row that was changed is judged anew.
    WITH ended AS MATERIALIZED (
        SELECT j.job_id FROM yardmaster.job_state j JOIN yardmaster.job_spec p ON p.job_id = j.job_id
         WHERE j.job_id IN (SELECT s.job_id FROM yardmaster.scratch_state s WHERE s.dropping_since IS NULL)
           AND j.status IN ('finished', 'cancelled', 'failed')
           AND (j.cleanup_requested OR (j.delete_requested AND p.cleanup IS DISTINCT FROM 'never')
                OR (CASE coalesce(p.cleanup, 'on_end') WHEN 'on_end' THEN true WHEN 'on_success' THEN j.status = 'finished' ELSE false END
                    AND j.finished_at + coalesce(p.cleanup_delay, interval '0') <= now()))
           FOR UPDATE OF j SKIP LOCKED
    )
    UPDATE yardmaster.scratch_state s SET dropping_since = now(), next_try = now() FROM ended e
     WHERE s.job_id = e.job_id AND s.dropping_since IS NULL;
    -- Of a job that is gone, only what was to be kept for good stays.
    UPDATE yardmaster.scratch_state s SET dropping_since = now(), next_try = now()
     WHERE s.dropping_since IS NULL AND NOT s.keep
       AND NOT EXISTS (SELECT FROM yardmaster.job_spec p WHERE p.job_id = s.job_id);
    RETURN QUERY SELECT * FROM yardmaster.scratch_state s
      WHERE s.dropping_since IS NOT NULL AND s.next_try <= clock_timestamp() AND s.scratch_id <> ALL (p_under_way)
      ORDER BY s.next_try LIMIT 100;
END $$;

-- What came of a try: the schema is gone, or the reason why not. The pause doubles up to a quarter of a minute.
CREATE FUNCTION yardmaster.scratch_tried(p_epoch bigint, p_token uuid, p_term integer, p_scratch_id bigint, p_reason text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM yardmaster.fence(p_epoch, p_token, p_term);
    IF p_reason IS NULL THEN
        DELETE FROM yardmaster.scratch_state s WHERE s.scratch_id = p_scratch_id;
    ELSE
        UPDATE yardmaster.scratch_state s
           SET tries = least(s.tries, 1000000) + 1, reason = p_reason,
               next_try = clock_timestamp() + least(interval '15 seconds', interval '0.5 seconds' * 2 ^ least(s.tries, 10))
         WHERE s.scratch_id = p_scratch_id;
    END IF;
END $$;

-- Takes note of schemas with our prefix, found in a database, of which nothing is recorded: the home that did was set back to
-- an earlier state. They are dropped like others. Answers how many.
CREATE FUNCTION yardmaster.scratch_adopt(p_epoch bigint, p_token uuid, p_term integer, p_node text, p_site uuid, p_names text[], p_owners text[])
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint;
BEGIN
    PERFORM yardmaster.fence(p_epoch, p_token, p_term);
    INSERT INTO yardmaster.scratch_state (job_id, node, site, owner, owner_oid, schema_name, dropping_since, next_try)
    SELECT coalesce(substring(f.name FROM '^yardmaster_[0-9a-f]+_([0-9]{1,18})_')::bigint, 0), p_node, p_site, f.owner,
           coalesce(to_regrole(quote_ident(f.owner))::oid, 0), f.name, now(), now()
      FROM unnest(p_names, p_owners) AS f(name, owner) CROSS JOIN yardmaster.secret h
     -- Home may be a node, too, and then is known by its site.
     WHERE NOT EXISTS (SELECT FROM yardmaster.scratch_state s
                        WHERE s.schema_name = f.name AND coalesce(s.site, h.site) = coalesce(p_site, h.site));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

GRANT SELECT ON yardmaster.scratch TO yardmaster_user, yardmaster_admin, yardmaster_monitor;
REVOKE EXECUTE ON FUNCTION yardmaster.scratch_prefix(), yardmaster.scratch_use(bigint, uuid, integer, bigint, integer, text, uuid),
    yardmaster.scratch_due(bigint, uuid, integer, bigint[]), yardmaster.scratch_tried(bigint, uuid, integer, bigint, text),
    yardmaster.scratch_adopt(bigint, uuid, integer, text, uuid, text[], text[]) FROM PUBLIC;
