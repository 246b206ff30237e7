-- The interface: views to read and insert into, the triggers behind them, row security, steering by request.
--
-- Submission and steering run with the caller's own rights (SECURITY INVOKER) and are checked by row security on
-- current_user. Definer code is pinned and qualified and lives in triggers only: it sees what the caller may not,
-- tells as little as possible, and writes nothing.

-- ---------------------------------------------------------------- who may what

-- May the caller become this role? SET on 16 and later, MEMBER before (there, membership was enough).
CREATE FUNCTION yardmaster.may_become(role name) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF role = current_user THEN
        RETURN true;
    ELSIF current_setting('server_version_num')::integer >= 160000 THEN
        RETURN pg_has_role(role, 'SET');
    END IF;
    RETURN pg_has_role(role, 'MEMBER');
END $$;

-- These two have no operators and only qualified names, so they need no pinned path and can be inlined.
CREATE FUNCTION yardmaster.steers_all() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.pg_has_role('yardmaster_admin', 'MEMBER') OR pg_catalog.pg_has_role('yardmaster_owner', 'MEMBER') $$;
CREATE FUNCTION yardmaster.sees_all() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.pg_has_role('yardmaster_monitor', 'MEMBER') OR pg_catalog.pg_has_role('yardmaster_admin', 'MEMBER')
        OR pg_catalog.pg_has_role('yardmaster_owner', 'MEMBER') $$;

-- ---------------------------------------------------------------- row triggers: forced columns

-- These run once a row, so they avoid what costs: a pinned path (everything is qualified instead) and queries.

CREATE FUNCTION yardmaster.role_oid(role name) RETURNS oid LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_oid oid := pg_catalog.to_regrole(pg_catalog.quote_ident(role));
BEGIN
    IF found_oid IS NULL THEN
        RAISE EXCEPTION 'role "%" does not exist', role
            USING ERRCODE = 'undefined_object', HINT = 'Name an existing login role as owner, or leave the owner out.';
    END IF;
    RETURN found_oid;
END $$;

-- An id comes from its sequence: nobody can occupy one that is still to come. (The owner may: a dump is restored so.)
CREATE FUNCTION yardmaster.check_id(sequence text, id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (id OPERATOR(pg_catalog.>) 0 AND id OPERATOR(pg_catalog.<=) pg_catalog.pg_sequence_last_value(sequence::pg_catalog.regclass)) IS NOT TRUE
       AND NOT pg_catalog.pg_has_role('yardmaster_owner', 'MEMBER') THEN
        RAISE EXCEPTION 'id % was not assigned', id USING ERRCODE = 'generated_always', HINT = 'Leave the id out.';
    END IF;
END $$;

CREATE FUNCTION yardmaster.job_spec_force() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM yardmaster.check_id('yardmaster.job_spec_job_id_seq', NEW.job_id);
    NEW.owner := coalesce(NEW.owner, current_user);
    NEW.owner_oid := yardmaster.role_oid(NEW.owner);
    NEW.submitted_by := current_user;
    NEW.submitted_at := pg_catalog.now();
    NEW.submit_xid := pg_catalog.pg_current_xact_id();
    NEW.priority := coalesce(NEW.priority, 0);
    NEW.scratch := coalesce(NEW.scratch, false);
    PERFORM yardmaster.check_retry(NEW.retry);
    IF NEW.cleanup OPERATOR(pg_catalog.<>) ALL ('{on_end,on_success,never}'::pg_catalog.text[]) THEN
        RAISE EXCEPTION 'cleanup "%" is none: it is on_end, on_success or never', NEW.cleanup
            USING ERRCODE = 'check_violation', HINT = 'To keep things for a while after the end, add cleanup_delay.';
    ELSIF NEW.cleanup_delay IS NOT NULL AND NEW.cleanup OPERATOR(pg_catalog.=) 'never' THEN
        RAISE EXCEPTION 'cleanup_delay has no meaning with cleanup "never"' USING ERRCODE = 'check_violation', HINT = 'Leave one of them out.';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION yardmaster.check_candidates(node text, candidates text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(candidates) NOT BETWEEN 1 AND 100 OR array_ndims(candidates) <> 1 OR array_lower(candidates, 1) <> 1 THEN
        RAISE EXCEPTION 'a task has 1 to 100 candidate nodes, not %', cardinality(candidates) USING ERRCODE = 'check_violation';
    ELSIF array_position(candidates, NULL) IS NOT NULL OR array_position(candidates, '') IS NOT NULL
          OR cardinality(candidates) <> (SELECT count(DISTINCT c) FROM unnest(candidates) c) THEN
        RAISE EXCEPTION 'the candidate nodes of a task must be names, each once' USING ERRCODE = 'check_violation';
    ELSIF node <> candidates[1] THEN
        RAISE EXCEPTION 'node "%" is not the first of the candidates', node
            USING ERRCODE = 'check_violation', HINT = 'Leave node out: the first candidate is the preferred one.';
    END IF;
END $$;

CREATE FUNCTION yardmaster.check_nodes_involved(nodes text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wrong record;
BEGIN
    IF cardinality(nodes) > 1000 THEN
        RAISE EXCEPTION 'nodes_involved names % nodes: a task burdens at most 1000', cardinality(nodes) USING ERRCODE = 'check_violation';
    ELSIF array_ndims(nodes) > 1 THEN
        RAISE EXCEPTION 'nodes_involved has % dimensions: it is a plain list of names', array_ndims(nodes)
            USING ERRCODE = 'check_violation', HINT = 'Write it as ARRAY[''east'', ''west''].';
    END IF;
    SELECT n.name, n.place INTO wrong FROM unnest(nodes) WITH ORDINALITY n(name, place)
     WHERE n.name IS NULL OR octet_length(n.name) NOT BETWEEN 1 AND 63 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'nodes_involved: name % is %, the name of a node has 1 to 63 bytes', wrong.place,
                        CASE WHEN wrong.name IS NULL THEN 'NULL' WHEN wrong.name = '' THEN 'empty'
                             ELSE format('"%s..." with %s bytes', left(wrong.name, 20), octet_length(wrong.name)) END
            USING ERRCODE = 'check_violation', HINT = 'SELECT name FROM yardmaster.node shows the declared nodes; home needs no name.';
    END IF;
END $$;

CREATE FUNCTION yardmaster.task_spec_force() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM yardmaster.check_id('yardmaster.task_spec_task_id_seq', NEW.task_id);
    IF NEW.nodes_involved IS NOT NULL THEN
        PERFORM yardmaster.check_nodes_involved(NEW.nodes_involved);
    END IF;
    IF NEW.candidates IS NOT NULL THEN
        PERFORM yardmaster.check_candidates(NEW.node, NEW.candidates);
        NEW.node := NEW.candidates[1];
    END IF;
    NEW.owner := coalesce(NEW.owner, current_user);
    NEW.owner_oid := yardmaster.role_oid(NEW.owner);
    NEW.submitted_by := current_user;
    NEW.submit_xid := pg_catalog.pg_current_xact_id();
    NEW.task_key := pg_catalog.gen_random_uuid();
    IF NEW.command IS NULL OR NEW.command OPERATOR(pg_catalog.!~) '[^\s]' THEN
        RAISE EXCEPTION 'the command of a task must not be empty'
            USING ERRCODE = 'check_violation', HINT = 'Give one SQL command string; a comment alone is allowed.';
    END IF;
    IF NEW.retry IS NOT NULL THEN
        PERFORM yardmaster.check_retry(NEW.retry);
    END IF;
    IF NEW.output OPERATOR(pg_catalog.!~) '^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$' THEN
        RAISE EXCEPTION 'output "%" is not the name of a file in the folder of the job', NEW.output
            USING ERRCODE = 'check_violation', HINT = 'Take up to 100 letters, digits and . _ -, not beginning with . or -, and no folder.';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION yardmaster.task_depend_force() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.submit_xid := pg_catalog.pg_current_xact_id();
    NEW.refused := NULL;
    RETURN NEW;
END $$;

-- A request is checked where it is made, by whatever way: what it names exists and is the caller's to steer, and a changed
-- command needs the right to become the task's owner, admin or not.
CREATE FUNCTION yardmaster.request_force() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    task_owner name;
BEGIN
    PERFORM yardmaster.check_id('yardmaster.request_request_id_seq', NEW.request_id);
    NEW.requested_by := current_user;
    NEW.requested_at := now();
    NEW.submit_xid := pg_current_xact_id();
    NEW.handled_at := NULL;
    NEW.outcome := NULL;
    IF NEW.kind IN ('task_cancel', 'task_retry') THEN
        SELECT t.owner INTO task_owner FROM yardmaster.task t WHERE t.task_id = NEW.task_id AND t.job_id = NEW.job_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'task % does not exist', coalesce(NEW.task_id::text, 'NULL') USING ERRCODE = 'undefined_object';
        END IF;
    ELSE
        NEW.task_id := NULL;
    END IF;
    IF NEW.kind IN ('node_drain', 'node_resume') THEN
        NEW.job_id := NULL;
        IF NOT yardmaster.steers_all() THEN
            RAISE EXCEPTION 'draining and resuming nodes needs membership in yardmaster_admin' USING ERRCODE = 'insufficient_privilege';
        ELSIF NOT EXISTS (SELECT FROM yardmaster.node n WHERE n.name = NEW.argument) THEN
            RAISE EXCEPTION 'node "%" is not declared', coalesce(NEW.argument, 'NULL') USING ERRCODE = 'undefined_object',
                HINT = 'SELECT name FROM yardmaster.node shows those that are.';
        END IF;
    ELSIF NEW.kind <> 'task_retry' THEN
        NEW.argument := NULL;
    ELSIF NEW.argument IS NOT NULL THEN
        IF NEW.argument !~ '[^\s]' THEN
            RAISE EXCEPTION 'the command of a task must not be empty' USING ERRCODE = 'check_violation';
        ELSIF NOT yardmaster.may_become(task_owner) THEN
            RAISE EXCEPTION 'changing the command of task % needs the right to become role "%"', NEW.task_id, task_owner
                USING ERRCODE = 'insufficient_privilege';
        END IF;
    END IF;
    RETURN NEW;
END $$;

-- The shape of a retry policy, as in a job file: {"max_retries": 3, "delays": ["5s"], "jitter": 0.1,
-- "permanent_sqlstates": ["42"]}. The same ranges hold in Settings.toml.
CREATE FUNCTION yardmaster.check_retry(retry jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    field record;
    item text;
BEGIN
    IF retry IS NULL THEN
        RETURN;
    END IF;
    IF jsonb_typeof(retry) <> 'object' THEN
        RAISE EXCEPTION 'retry must be an object, not %', jsonb_typeof(retry) USING ERRCODE = 'check_violation';
    END IF;
    FOR field IN SELECT key, value FROM jsonb_each(retry) LOOP
        IF field.key = 'max_retries' THEN
            IF jsonb_typeof(field.value) <> 'number' OR (field.value)::text !~ '^\d{1,5}$'
               OR (field.value)::text::integer > 10000 THEN
                RAISE EXCEPTION 'retry.max_retries = % is out of range: 0 to 10000', field.value USING ERRCODE = 'check_violation';
            END IF;
        ELSIF field.key = 'jitter' THEN
            IF jsonb_typeof(field.value) <> 'number' OR (field.value)::text::numeric NOT BETWEEN 0 AND 1 THEN
                RAISE EXCEPTION 'retry.jitter = % is out of range: 0 to 1', field.value USING ERRCODE = 'check_violation';
            END IF;
        ELSIF field.key IN ('delays', 'permanent_sqlstates') THEN
            IF jsonb_typeof(field.value) <> 'array' OR jsonb_array_length(field.value) > 100 THEN
                RAISE EXCEPTION 'retry.% must be a list of at most 100', field.key USING ERRCODE = 'check_violation';
            END IF;
            FOR item IN SELECT jsonb_array_elements_text(field.value) LOOP
                IF field.key = 'permanent_sqlstates' AND (item IS NULL OR item !~ '^([0-9A-Z]{2}|[0-9A-Z]{5})$') THEN
                    RAISE EXCEPTION 'retry.permanent_sqlstates: "%" is neither a class of two nor a code of five characters', item
                        USING ERRCODE = 'check_violation';
                ELSIF field.key = 'delays' AND (item IS NULL OR item::interval NOT BETWEEN interval '0' AND interval '30 days') THEN
                    RAISE EXCEPTION 'retry.delays: "%" is out of range: 0s to 30d', item USING ERRCODE = 'check_violation';
                END IF;
            END LOOP;
        ELSE
            RAISE EXCEPTION 'unknown key retry.%', field.key USING ERRCODE = 'check_violation',
                HINT = 'Known are max_retries, delays, jitter and permanent_sqlstates.';
        END IF;
    END LOOP;
END $$;

CREATE TRIGGER force BEFORE INSERT ON yardmaster.job_spec FOR EACH ROW EXECUTE FUNCTION yardmaster.job_spec_force();
CREATE TRIGGER force BEFORE INSERT ON yardmaster.task_spec FOR EACH ROW EXECUTE FUNCTION yardmaster.task_spec_force();
CREATE TRIGGER force BEFORE INSERT ON yardmaster.task_depend FOR EACH ROW EXECUTE FUNCTION yardmaster.task_depend_force();
CREATE TRIGGER force BEFORE INSERT ON yardmaster.request FOR EACH ROW EXECUTE FUNCTION yardmaster.request_force();

-- ---------------------------------------------------------------- statement triggers: what can be seen now is refused now

-- Where and as whom a task would run. The leader publishes nodes and settings; before the first one did,
-- admission alone judges (it judges again in any case).
CREATE FUNCTION yardmaster.check_target(p_owner name, p_node text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_node IS NOT NULL AND NOT EXISTS (SELECT FROM yardmaster.node n WHERE n.name = p_node)
       AND EXISTS (SELECT FROM yardmaster.published p WHERE p.key = 'nodes') THEN
        RAISE EXCEPTION 'node "%" is not declared', p_node
            USING ERRCODE = 'undefined_object',
                  HINT = 'Declare it as [nodes.NAME] in Settings.toml and reload, or leave the node out to run at home.';
    END IF;
    IF EXISTS (SELECT FROM pg_roles r WHERE r.rolname = p_owner AND r.rolsuper)
       AND EXISTS (SELECT FROM yardmaster.published p WHERE p.key = 'allow_superuser_owners' AND p.value = 'false') THEN
        RAISE EXCEPTION 'role "%" is a superuser and may not own tasks', p_owner
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Name another owner, or set allow_superuser_owners = true in Settings.toml.';
    END IF;
END $$;

CREATE FUNCTION yardmaster.task_depend_check() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, yardmaster, pg_temp AS $$
DECLARE
    wrong record;
BEGIN
    IF TG_RELID <> 'yardmaster.task_depend'::regclass THEN
        RAISE EXCEPTION 'this trigger belongs to yardmaster.task_depend' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT a.* INTO wrong FROM added a WHERE a.task_id = a.depends_on LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'task % cannot depend on itself', wrong.task_id USING ERRCODE = 'check_violation';
    END IF;
    SELECT a.job_id, CASE WHEN t.job_id IS DISTINCT FROM a.job_id THEN a.task_id ELSE a.depends_on END AS task_id INTO wrong
      FROM added a
      LEFT JOIN yardmaster.task_spec t ON t.task_id = a.task_id
      LEFT JOIN yardmaster.task_spec d ON d.task_id = a.depends_on
     WHERE t.job_id IS DISTINCT FROM a.job_id OR d.job_id IS DISTINCT FROM a.job_id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'task % is not a task of job %', wrong.task_id, wrong.job_id
            USING ERRCODE = 'foreign_key_violation', HINT = 'A task depends on tasks of its own job only.';
    END IF;
    SELECT a.task_id, s.status INTO wrong
      FROM added a JOIN yardmaster.task_state s ON s.task_id = a.task_id
     WHERE s.attempt > 0 OR s.status NOT IN ('blocked', 'runnable') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'task % has started (it is %): it takes no more dependencies', wrong.task_id, wrong.status
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    -- Every cycle has an edge onto a later task: one of the new ones, which are searched from upwards, or one that was
    -- there before, and then any new edge may close it.
    WITH RECURSIVE older AS (
        SELECT DISTINCT u.job_id FROM yardmaster.task_depend u
         WHERE u.job_id IN (SELECT a.job_id FROM added a) AND u.depends_on > u.task_id AND u.refused IS NULL
           AND NOT EXISTS (SELECT FROM added a WHERE a.task_id = u.task_id AND a.depends_on = u.depends_on)
    ), suspicious AS (
        SELECT a.task_id AS origin, a.depends_on AS task_id FROM added a
         WHERE a.depends_on > a.task_id OR a.job_id IN (SELECT o.job_id FROM older o)
    ), up AS (
        SELECT origin, task_id FROM suspicious
        UNION
        SELECT up.origin, e.depends_on FROM up JOIN yardmaster.task_depend e ON e.task_id = up.task_id
         WHERE up.task_id <> up.origin AND e.refused IS NULL
    )
    SELECT up.origin AS task_id INTO wrong FROM up WHERE up.task_id = up.origin LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the dependencies of task % close a cycle', wrong.task_id
            USING ERRCODE = 'check_violation', HINT = 'Remove one of the dependencies on the way from the task back to itself.';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER check_added AFTER INSERT ON yardmaster.task_depend REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION yardmaster.task_depend_check();

-- One empty message a statement, none while the queue is half full (two ordinary users can fill it; the poll
-- finds the rows anyway) or when the caller opted out by SET yardmaster.notify = off.
CREATE FUNCTION yardmaster.wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(pg_catalog.current_setting('yardmaster.notify', true), '') OPERATOR(pg_catalog.<>) 'off'
       AND pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.5 THEN
        PERFORM pg_catalog.pg_notify('yardmaster', '');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER wake AFTER INSERT ON yardmaster.job_spec FOR EACH STATEMENT EXECUTE FUNCTION yardmaster.wake();
CREATE TRIGGER wake AFTER INSERT ON yardmaster.task_spec FOR EACH STATEMENT EXECUTE FUNCTION yardmaster.wake();
CREATE TRIGGER wake AFTER INSERT ON yardmaster.task_depend FOR EACH STATEMENT EXECUTE FUNCTION yardmaster.wake();
CREATE TRIGGER wake AFTER INSERT ON yardmaster.request FOR EACH STATEMENT EXECUTE FUNCTION yardmaster.wake();

-- ---------------------------------------------------------------- views

-- Rows whose admission is still to come show as scheduled and blocked.
CREATE VIEW yardmaster.job WITH (security_barrier) AS
SELECT j.job_id, coalesce(s.status, 'scheduled') AS state, j.job_type, j.description, j.owner, j.priority,
       j.submitted_at, s.started_at, s.finished_at, j.submitted_by, j.key, j.retry, j.timeout,
       coalesce(s.paused, false) AS paused, coalesce(s.n_tasks, 0) AS tasks, coalesce(s.n_done, 0) AS tasks_done,
       coalesce(s.n_bad, 0) AS tasks_failed, j.scratch, j.cleanup, j.cleanup_delay
  FROM yardmaster.job_spec j LEFT JOIN yardmaster.job_state s ON s.job_id = j.job_id
 WHERE ((SELECT yardmaster.sees_all()) OR pg_has_role(j.owner_oid, 'MEMBER')) AND s.delete_requested IS NOT TRUE;

-- Reads the view, which shows what the caller may see: another role's job, and a deleted one, look like an unknown id.
CREATE FUNCTION yardmaster.may_steer(p_job_id bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM yardmaster.job j
                    WHERE j.job_id = p_job_id AND (yardmaster.steers_all() OR EXISTS (
                          SELECT FROM yardmaster.job_spec p WHERE p.job_id = p_job_id AND pg_has_role(p.owner_oid, 'MEMBER')))) $$;

-- message and sqlstate are those of the last ended attempt, or of an ending without one; empty while one runs.
CREATE VIEW yardmaster.task WITH (security_barrier) AS
SELECT t.job_id, t.task_id, t.name, t.owner, s.pid,
       CASE WHEN s.prefetched AND s.status = 'running' THEN 'runnable' ELSE coalesce(s.status, 'blocked') END AS status,
       coalesce(s.command, t.command) AS command,
       CASE WHEN t.candidates IS NULL THEN t.node
            ELSE coalesce((SELECT l.node FROM yardmaster.lane l WHERE l.lane = s.lane), t.node) END AS node, t.nodes_involved, t.priority,
       coalesce(s.retry_count, 0) AS retry_count,
       CASE WHEN s.task_id IS NULL THEN t.not_before ELSE s.not_before END AS not_before,
       CASE WHEN s.status NOT IN ('running', 'cancelling') THEN coalesce(s.message, l.message) END AS message,
       CASE WHEN s.status NOT IN ('running', 'cancelling') THEN coalesce(s.sqlstate, l.sqlstate) END AS sqlstate,
       coalesce(s.attempt, 0) AS attempt, s.started_at, s.finished_at,
       coalesce(s.interruptions, 0) AS interruptions, t.retry, t.timeout, t.transactional, t.submitted_by, t.task_key, t.output, t.candidates,
       t.verify, t.undo
  FROM yardmaster.task_spec t
  JOIN yardmaster.job_spec j ON j.job_id = t.job_id
  LEFT JOIN yardmaster.task_state s ON s.task_id = t.task_id
  LEFT JOIN yardmaster.attempt_log l ON l.task_id = s.task_id
       AND l.attempt = CASE WHEN s.status IN ('running', 'cancelling') THEN NULL ELSE s.attempt END
  LEFT JOIN yardmaster.job_state js ON js.job_id = j.job_id
 WHERE ((SELECT yardmaster.sees_all()) OR pg_has_role(j.owner_oid, 'MEMBER')) AND js.delete_requested IS NOT TRUE;

CREATE VIEW yardmaster.attempt WITH (security_barrier) AS
SELECT l.task_id, l.attempt, t.job_id, l.node, l.pid, l.outcome, l.sqlstate, l.message, l.started_at, l.ended_at
  FROM yardmaster.attempt_log l JOIN yardmaster.task_spec t ON t.task_id = l.task_id
  JOIN yardmaster.job_spec j ON j.job_id = t.job_id
  LEFT JOIN yardmaster.job_state js ON js.job_id = j.job_id
 WHERE ((SELECT yardmaster.sees_all()) OR pg_has_role(j.owner_oid, 'MEMBER')) AND js.delete_requested IS NOT TRUE
UNION ALL
SELECT s.task_id, s.attempt, s.job_id, (SELECT a.node FROM yardmaster.lane a WHERE a.lane = s.lane), s.pid, NULL, NULL, NULL, s.started_at, NULL
  FROM yardmaster.task_state s JOIN yardmaster.task_spec t ON t.task_id = s.task_id
  JOIN yardmaster.job_spec j ON j.job_id = t.job_id
 WHERE s.status IN ('running', 'cancelling') AND NOT s.prefetched AND ((SELECT yardmaster.sees_all()) OR pg_has_role(j.owner_oid, 'MEMBER'));

-- How many tasks of anybody run, in all ('') and on each node: numbers only, so that who may not see a task can still
-- learn that it holds a slot.
CREATE VIEW yardmaster.slot_use AS
SELECT ''::text AS node, count(*) AS used FROM yardmaster.task_state s WHERE s.status IN ('running', 'cancelling') AND NOT s.prefetched
UNION ALL
SELECT n.node, count(*) FROM yardmaster.task_state s JOIN yardmaster.lane l ON l.lane = s.lane
 CROSS JOIN LATERAL unnest(l.nodes) n(node) WHERE s.status IN ('running', 'cancelling') AND NOT s.prefetched GROUP BY n.node;

-- The declared nodes. Down outweighs draining: it says why nothing runs there now.
CREATE VIEW yardmaster.node AS
SELECT n.name, CASE WHEN n.fault IS NOT NULL THEN 'down' WHEN n.draining THEN 'draining' ELSE 'active' END AS state,
       CASE WHEN n.fault IS NOT NULL THEN n.fault WHEN n.draining THEN format('drained by %s', n.drained_by) END AS reason,
       CASE WHEN n.fault IS NOT NULL THEN n.fault_since WHEN n.draining THEN n.draining_since END AS since,
       coalesce((SELECT u.used FROM yardmaster.slot_use u WHERE u.node = n.name), 0) AS slots_used, n.max_task_executors,
       n.max_tracked_tasks,
       (SELECT count(*) FROM yardmaster.lane l JOIN yardmaster.task_state s ON s.lane = l.lane
         WHERE (l.node = n.name OR n.name = ANY (l.candidates)) AND s.away AND s.status IN ('blocked', 'runnable', 'running', 'cancelling')) AS tasks_tracked
  FROM yardmaster.node_state n WHERE n.declared;

-- Whatever status, ids or times an INSERT names, the leader decides them; ids are assigned.
CREATE FUNCTION yardmaster.job_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.job_id IS NOT NULL THEN
        RAISE EXCEPTION 'job_id is assigned, not given' USING ERRCODE = 'generated_always', HINT = 'Leave job_id out and use RETURNING job_id.';
    END IF;
    NEW.job_id := nextval('yardmaster.job_spec_job_id_seq');
    NEW.owner := coalesce(NEW.owner, current_user);
    NEW.priority := coalesce(NEW.priority, 0);
    NEW.scratch := coalesce(NEW.scratch, false);
    INSERT INTO yardmaster.job_spec (job_id, job_type, description, owner, priority, key, retry, timeout, scratch, cleanup, cleanup_delay)
    VALUES (NEW.job_id, NEW.job_type, NEW.description, NEW.owner, NEW.priority, NEW.key, NEW.retry, NEW.timeout, NEW.scratch,
            NEW.cleanup, NEW.cleanup_delay);
    NEW.state := 'scheduled';
    NEW.submitted_at := now();
    NEW.submitted_by := current_user;
    NEW.started_at := NULL;
    NEW.finished_at := NULL;
    NEW.paused := false;
    NEW.tasks := 0;
    NEW.tasks_done := 0;
    NEW.tasks_failed := 0;
    RETURN NEW;
END $$;
CREATE TRIGGER insert_row INSTEAD OF INSERT ON yardmaster.job FOR EACH ROW EXECUTE FUNCTION yardmaster.job_insert();

CREATE FUNCTION yardmaster.task_insert() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its_job record;
BEGIN
    IF NEW.task_id IS NOT NULL THEN
        RAISE EXCEPTION 'task_id is assigned, not given' USING ERRCODE = 'generated_always', HINT = 'Leave task_id out and use RETURNING task_id.';
    END IF;
    SELECT j.state, j.priority INTO its_job FROM yardmaster.job j WHERE j.job_id OPERATOR(pg_catalog.=) NEW.job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % does not exist', coalesce(NEW.job_id::text, 'NULL') USING ERRCODE = 'foreign_key_violation';
    ELSIF its_job.state OPERATOR(pg_catalog.>=) 'cancelling'::yardmaster.job_status
          AND its_job.state OPERATOR(pg_catalog.<>) 'failing'::yardmaster.job_status THEN
        RAISE EXCEPTION 'job % is %: it takes no more tasks', NEW.job_id, its_job.state
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Submit a new job, or retry this one first.';
    END IF;
    NEW.task_id := pg_catalog.nextval('yardmaster.task_spec_task_id_seq');
    NEW.owner := coalesce(NEW.owner, current_user);
    NEW.priority := coalesce(NEW.priority, its_job.priority);
    IF NEW.node IS NOT NULL OR NEW.owner OPERATOR(pg_catalog.<>) current_user
       OR pg_catalog.current_setting('is_superuser') OPERATOR(pg_catalog.=) 'on' THEN
        PERFORM yardmaster.check_target(NEW.owner, NEW.node);
    END IF;
    IF NEW.candidates IS NOT NULL THEN
        PERFORM yardmaster.check_target(NEW.owner, c) FROM pg_catalog.unnest(NEW.candidates) c;
    END IF;
    INSERT INTO yardmaster.task_spec (task_id, job_id, name, owner, command, node, nodes_involved, priority,
                                      not_before, retry, timeout, transactional, output, candidates, verify, undo)
    VALUES (NEW.task_id, NEW.job_id, NEW.name, NEW.owner, NEW.command, NEW.node, NEW.nodes_involved, NEW.priority,
            NEW.not_before, NEW.retry, NEW.timeout, NEW.transactional, NEW.output, NEW.candidates,
            NEW.verify, NEW.undo);
    NEW.status := 'blocked';
    NEW.attempt := 0;
    NEW.retry_count := 0;
    NEW.interruptions := 0;
    NEW.pid := NULL;
    NEW.message := NULL;
    NEW.sqlstate := NULL;
    NEW.started_at := NULL;
    NEW.finished_at := NULL;
    NEW.node := coalesce(NEW.node, NEW.candidates[1]);
    -- Assigned by the table, where its submitter may not read it: the view shows it.
    NEW.task_key := NULL;
    NEW.submitted_by := current_user;
    RETURN NEW;
END $$;
CREATE TRIGGER insert_row INSTEAD OF INSERT ON yardmaster.task FOR EACH ROW EXECUTE FUNCTION yardmaster.task_insert();

-- Every change is a request. Only the owner of the catalog and superusers come as far as these; the others lack the privilege
-- and must: who may update or delete may also lock a view, and with it the tables of the leader behind it.
CREATE FUNCTION yardmaster.change_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'yardmaster.% takes no %: it is changed by request', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'feature_not_supported', HINT = CASE TG_TABLE_NAME || ' ' || TG_OP
            WHEN 'job UPDATE' THEN 'Call yardmaster.job_cancel, job_pause, job_resume or job_retry with the job_id.'
            WHEN 'job DELETE' THEN 'Call yardmaster.job_cancel(job_id), and when the job has ended yardmaster.job_delete(job_id).'
            WHEN 'task UPDATE' THEN 'Call yardmaster.task_cancel(task_id), or yardmaster.task_retry(task_id, command) to run it again with another command.'
            WHEN 'task DELETE' THEN 'Call yardmaster.task_cancel(task_id); tasks are removed with their job, by yardmaster.job_delete(job_id).'
            ELSE 'Attempts are history: yardmaster.task_retry(task_id) makes a new one, yardmaster.job_delete(job_id) removes them with their job.' END;
END $$;
CREATE TRIGGER refuse_change INSTEAD OF UPDATE OR DELETE ON yardmaster.job FOR EACH ROW EXECUTE FUNCTION yardmaster.change_refuse();
CREATE TRIGGER refuse_change INSTEAD OF UPDATE OR DELETE ON yardmaster.task FOR EACH ROW EXECUTE FUNCTION yardmaster.change_refuse();
CREATE TRIGGER refuse_change INSTEAD OF UPDATE OR DELETE ON yardmaster.attempt FOR EACH ROW EXECUTE FUNCTION yardmaster.change_refuse();

-- The tasks that the reading transaction itself has added, and so nothing that it does not know: a wait for them cannot end.
CREATE VIEW yardmaster.task_of_this_transaction WITH (security_barrier) AS
SELECT t.job_id, t.task_id FROM yardmaster.task_spec t WHERE t.submit_xid = pg_current_xact_id_if_assigned();

-- ---------------------------------------------------------------- rights

ALTER TABLE yardmaster.job_spec ENABLE ROW LEVEL SECURITY;
ALTER TABLE yardmaster.task_spec ENABLE ROW LEVEL SECURITY;
ALTER TABLE yardmaster.task_depend ENABLE ROW LEVEL SECURITY;
ALTER TABLE yardmaster.request ENABLE ROW LEVEL SECURITY;

CREATE POLICY see ON yardmaster.job_spec FOR SELECT
    USING ((SELECT yardmaster.sees_all()) OR pg_has_role(owner_oid, 'MEMBER'));
CREATE POLICY submit ON yardmaster.job_spec FOR INSERT
    WITH CHECK (submitted_by = current_user AND yardmaster.may_become(owner));
CREATE POLICY submit ON yardmaster.task_spec FOR INSERT
    WITH CHECK (submitted_by = current_user AND (owner = current_user OR yardmaster.may_become(owner))
           AND EXISTS (SELECT FROM yardmaster.job_spec j WHERE j.job_id = task_spec.job_id
                          AND (pg_has_role(j.owner_oid, 'MEMBER') OR (SELECT yardmaster.steers_all()))));
CREATE POLICY see ON yardmaster.task_depend FOR SELECT
    USING (EXISTS (SELECT FROM yardmaster.job j WHERE j.job_id = task_depend.job_id));
CREATE POLICY submit ON yardmaster.task_depend FOR INSERT
    WITH CHECK (EXISTS (SELECT FROM yardmaster.job_spec j WHERE j.job_id = task_depend.job_id
                           AND (pg_has_role(j.owner_oid, 'MEMBER') OR (SELECT yardmaster.steers_all()))));
-- Who asked for a deletion still learns what came of it.
CREATE POLICY see ON yardmaster.request FOR SELECT
    USING (EXISTS (SELECT FROM yardmaster.job j WHERE j.job_id = request.job_id)
           OR (kind = 'job_delete' AND requested_by = current_user)
           OR (job_id IS NULL AND (SELECT yardmaster.sees_all())));
CREATE POLICY submit ON yardmaster.request FOR INSERT
    WITH CHECK (requested_by = current_user
           AND CASE WHEN job_id IS NULL THEN yardmaster.steers_all() ELSE yardmaster.may_steer(job_id) END);

GRANT USAGE ON SCHEMA yardmaster TO PUBLIC;
GRANT SELECT (job_id, owner, owner_oid, priority, key, content_hash, submit_xid) ON yardmaster.job_spec TO yardmaster_user, yardmaster_admin;
GRANT INSERT (job_id, job_type, description, owner, priority, key, content_hash, retry, timeout, scratch, cleanup, cleanup_delay)
    ON yardmaster.job_spec TO yardmaster_user, yardmaster_admin;
GRANT INSERT (task_id, job_id, name, owner, command, node, nodes_involved, priority, not_before, retry, timeout, transactional, output, candidates, verify, undo)
    ON yardmaster.task_spec TO yardmaster_user, yardmaster_admin;
GRANT SELECT, INSERT (job_id, task_id, depends_on) ON yardmaster.task_depend TO yardmaster_user, yardmaster_admin;
GRANT SELECT, INSERT (request_id, kind, job_id, task_id, argument) ON yardmaster.request TO yardmaster_user, yardmaster_admin;
GRANT SELECT, INSERT ON yardmaster.job, yardmaster.task TO yardmaster_user, yardmaster_admin;
GRANT SELECT ON yardmaster.attempt, yardmaster.node, yardmaster.slot_use, yardmaster.published, yardmaster.task_of_this_transaction TO yardmaster_user, yardmaster_admin, yardmaster_monitor;
GRANT SELECT ON yardmaster.job, yardmaster.task, yardmaster.task_depend, yardmaster.request TO yardmaster_monitor;
GRANT SELECT (job_id, owner, owner_oid, submit_xid) ON yardmaster.job_spec TO yardmaster_monitor;
GRANT SELECT ON yardmaster.leader, yardmaster.leader_renewal TO yardmaster_user, yardmaster_admin, yardmaster_monitor;
GRANT USAGE ON SEQUENCE yardmaster.job_spec_job_id_seq, yardmaster.task_spec_task_id_seq, yardmaster.request_request_id_seq
    TO yardmaster_user, yardmaster_admin;
