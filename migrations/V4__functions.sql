-- Functions that people call. All run with the caller's own rights.

-- ---------------------------------------------------------------- job_submit

-- Refuses keys that nobody knows, so that a misspelt one does not pass silently.
CREATE FUNCTION yardmaster.check_keys(what text, given jsonb, known text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE unknown text;
BEGIN
    IF jsonb_typeof(given) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION '% must be an object, not %', what, coalesce(jsonb_typeof(given), 'null') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT k INTO unknown FROM jsonb_object_keys(given) k WHERE k <> ALL (known) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'unknown key "%" in %', unknown, what
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Known are ' || array_to_string(known, ', ') || '.';
    END IF;
END $$;

-- One typed value of a job or a task as a job file gives it: says whose it is, which key, and what is expected. A look costs
-- a subtransaction, so tasks are looked at only when one of them is known to be wrong.
CREATE FUNCTION yardmaster.check_field(what text, key text, value jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given text := value #>> '{}';
    fits boolean := true;
    expected text := CASE
        WHEN key = 'priority' THEN 'a whole number from -1000000 to 1000000'
        WHEN key = 'timeout' THEN 'a time such as "90s" or "2 hours", more than 0 and at most 1000 days'
        WHEN key = 'cleanup_delay' THEN 'a time such as "90s" or "2 hours", from 0 to 1000 days'
        WHEN key = 'not_before' THEN 'a moment such as "2030-01-31 06:00:00+00"'
        WHEN key IN ('transactional', 'scratch') THEN 'true or false'
        WHEN key IN ('depends_on', 'nodes_involved') THEN 'a list of names such as ["a", "b"]'
        WHEN key = 'retry' THEN 'an object such as {"max_retries": 3, "delays": ["5s"]}'
    END;
    reason text;
    hint text;
BEGIN
    IF expected IS NULL OR (given IS NULL AND key NOT IN ('depends_on', 'nodes_involved', 'retry')) THEN
        RETURN;
    END IF;
    BEGIN
        CASE key
            WHEN 'priority' THEN fits := given::integer BETWEEN -1000000 AND 1000000;
            WHEN 'timeout' THEN fits := given::interval > interval '0' AND given::interval <= interval '1000 days';
            WHEN 'cleanup_delay' THEN fits := given::interval BETWEEN interval '0' AND interval '1000 days';
            WHEN 'not_before' THEN fits := given::timestamptz IS NOT NULL;
            WHEN 'transactional', 'scratch' THEN fits := given::boolean IS NOT NULL;
            WHEN 'retry' THEN PERFORM yardmaster.check_retry(value);
            ELSE fits := jsonb_typeof(value) = 'array' AND NOT value @? 'strict $[*] ? (@.type() != "string")';
        END CASE;
        IF NOT fits THEN
            RAISE EXCEPTION 'it is not' USING ERRCODE = 'invalid_parameter_value';
        END IF;
    EXCEPTION WHEN data_exception OR check_violation THEN
        GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
        IF key = 'retry' THEN
            RAISE EXCEPTION '%: %', what, reason USING ERRCODE = SQLSTATE,
                HINT = coalesce(nullif(hint, ''), format('%s is %s.', key, expected));
        END IF;
        RAISE EXCEPTION '%: % = % is not %', what, key, left(value::text, 100), expected
            USING ERRCODE = SQLSTATE, HINT = format('Correct %s of %s, or leave it out.', key, what);
    END;
END $$;

-- A task's node, or its candidates, as a job file gives them; NULL is home.
CREATE FUNCTION yardmaster.candidates_of(node jsonb) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c FROM jsonb_array_elements_text(CASE WHEN jsonb_typeof(node) = 'array' THEN node ELSE jsonb_build_array(node) END) c $$;

-- Submits a job given as the JSON form of a job file; returns its id. With a key the call is idempotent: the same
-- content returns the same id, other content is an error. Everything happens in the caller's transaction.
CREATE FUNCTION yardmaster.job_submit(job jsonb) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_job_id bigint;
    job_owner name := coalesce(job->>'owner', current_user);
    job_priority integer;
    hash bytea := sha256(convert_to(job::text, 'UTF8'));
    existing record;
    wrong record;
    ids bigint[];
BEGIN
    PERFORM yardmaster.check_keys('the job', job, ARRAY['description', 'job_type', 'priority', 'key', 'owner', 'timeout', 'retry', 'scratch',
        'cleanup', 'cleanup_delay', 'task']);
    PERFORM yardmaster.check_field('the job', f.key, f.value) FROM jsonb_each(job) f WHERE f.key <> 'task';
    job_priority := coalesce((job->>'priority')::integer, 0);
    IF jsonb_typeof(coalesce(job->'task', '[]')) <> 'array' THEN
        RAISE EXCEPTION '"task" must be a list of tasks' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF job->>'key' IS NOT NULL THEN
        SELECT j.job_id, j.content_hash INTO existing FROM yardmaster.job_spec j
         WHERE j.owner_oid = yardmaster.role_oid(job_owner) AND j.key = job->>'key';
        IF FOUND THEN
            IF existing.content_hash = hash THEN
                RETURN existing.job_id;
            END IF;
            RAISE EXCEPTION 'key "%" was used for job % with other content', job->>'key', existing.job_id
                USING ERRCODE = 'unique_violation', HINT = 'Use a new key for a new job.';
        END IF;
    END IF;

    new_job_id := nextval('yardmaster.job_spec_job_id_seq');
    BEGIN
        INSERT INTO yardmaster.job_spec (job_id, job_type, description, owner, priority, key, content_hash, retry, timeout,
                                         scratch, cleanup, cleanup_delay)
        VALUES (new_job_id, job->>'job_type', job->>'description', job_owner, job_priority, job->>'key', hash,
                job->'retry', (job->>'timeout')::interval, coalesce((job->>'scratch')::boolean, false), job->>'cleanup',
                (job->>'cleanup_delay')::interval);
    EXCEPTION WHEN unique_violation THEN
        -- A twin committed between our look and our insert: look again, once.
        SELECT j.job_id, j.content_hash INTO existing FROM yardmaster.job_spec j
         WHERE j.owner_oid = yardmaster.role_oid(job_owner) AND j.key = job->>'key';
        IF FOUND AND existing.content_hash = hash THEN
            RETURN existing.job_id;
        END IF;
        RAISE EXCEPTION 'key "%" is in use for another job', job->>'key' USING ERRCODE = 'unique_violation', HINT = 'Use a new key for a new job.';
    END;

    IF jsonb_array_length(coalesce(job->'task', '[]')) = 0 THEN
        RETURN new_job_id;
    END IF;

    -- Keys and types first, in one pass, naming the task by its place and name.
    FOR wrong IN
        SELECT t.place, t.value FROM jsonb_array_elements(job->'task') WITH ORDINALITY t(value, place)
         WHERE jsonb_typeof(t.value) <> 'object'
            OR (t.value - ARRAY['name', 'command', 'depends_on', 'node', 'nodes_involved', 'owner', 'priority',
                                'not_before', 'timeout', 'transactional', 'retry', 'output', 'verify', 'undo']) <> '{}'
            OR (t.value ? 'depends_on' AND jsonb_typeof(t.value->'depends_on') <> 'array')
            OR (t.value ? 'nodes_involved' AND (jsonb_typeof(t.value->'nodes_involved') <> 'array'
                OR t.value @? 'strict $.nodes_involved[*] ? (@.type() != "string")'))
         LIMIT 1
    LOOP
        PERFORM yardmaster.check_keys(format('task %s (%s)', wrong.place, coalesce(wrong.value->>'name', 'unnamed')), wrong.value,
            ARRAY['name', 'command', 'depends_on', 'node', 'nodes_involved', 'owner', 'priority', 'not_before',
                  'timeout', 'transactional', 'retry', 'output', 'verify', 'undo']);
        PERFORM yardmaster.check_field(format('task %s (%s)', wrong.place, coalesce(wrong.value->>'name', 'unnamed')), f.key, f.value)
           FROM jsonb_each(wrong.value) f;
    END LOOP;

    PERFORM yardmaster.check_target(t.owner, t.node)
       FROM (SELECT DISTINCT coalesce(t.value->>'owner', job_owner)::name AS owner, n.node
               FROM jsonb_array_elements(job->'task') t(value) CROSS JOIN LATERAL yardmaster.candidates_of(t.value->'node') n(node)) t;

    -- The leader looks again when it admits them: others may be on their way.
    SELECT n.name, n.max_tracked_tasks, n.tasks_tracked, w.n INTO wrong
      FROM (SELECT c.node, count(*) AS n FROM jsonb_array_elements(job->'task') t(value)
             CROSS JOIN LATERAL yardmaster.candidates_of(t.value->'node') c(node) WHERE t.value ? 'node' GROUP BY 1) w
      JOIN yardmaster.node n ON n.name = w.node
     WHERE n.max_tracked_tasks IS NOT NULL AND n.tasks_tracked + w.n > n.max_tracked_tasks LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'node % has % of at most % tracked tasks: % more are refused', wrong.name, wrong.tasks_tracked,
                        wrong.max_tracked_tasks, wrong.n
            USING ERRCODE = 'configuration_limit_exceeded',
                  HINT = format('Submit them when others have ended, or raise max_tracked_tasks of [nodes.%s] in Settings.toml.', wrong.name);
    END IF;

    -- Ids in the order of the file, so that a file in dependency order needs no search for cycles.
    ids := ARRAY(SELECT nextval('yardmaster.task_spec_task_id_seq') FROM generate_series(1, jsonb_array_length(job->'task')));

    BEGIN
        INSERT INTO yardmaster.task_spec (task_id, job_id, name, owner, command, node, nodes_involved, priority,
                                          not_before, retry, timeout, transactional, output, candidates, verify, undo)
        SELECT ids[t.place], new_job_id, t.value->>'name', coalesce(t.value->>'owner', job_owner), t.value->>'command',
               CASE WHEN jsonb_typeof(t.value->'node') <> 'array' THEN t.value->>'node' END,
               CASE WHEN t.value ? 'nodes_involved' THEN ARRAY(SELECT jsonb_array_elements_text(t.value->'nodes_involved')) END,
               coalesce((t.value->>'priority')::integer, job_priority), (t.value->>'not_before')::timestamptz,
               t.value->'retry', (t.value->>'timeout')::interval, (t.value->>'transactional')::boolean, t.value->>'output',
               CASE WHEN jsonb_typeof(t.value->'node') = 'array' THEN ARRAY(SELECT yardmaster.candidates_of(t.value->'node')) END,
               t.value->>'verify', t.value->>'undo'
          FROM jsonb_array_elements(job->'task') WITH ORDINALITY t(value, place)
         ORDER BY t.place;
    EXCEPTION WHEN data_exception OR check_violation THEN
        PERFORM yardmaster.check_field(format('task %s (%s)', t.place, coalesce(t.value->>'name', 'unnamed')), f.key, f.value)
           FROM jsonb_array_elements(job->'task') WITH ORDINALITY t(value, place) CROSS JOIN LATERAL jsonb_each(t.value) f;
        -- It is none of the typed values.
        RAISE;
    END;

    WITH named AS (
        SELECT t.value->>'name' AS name, t.place FROM jsonb_array_elements(job->'task') WITH ORDINALITY t(value, place)
         WHERE t.value ? 'name'
    ), edge AS (
        SELECT t.place, coalesce(t.value->>'name', 'number ' || t.place) AS task, dependency.name
          FROM jsonb_array_elements(job->'task') WITH ORDINALITY t(value, place)
         CROSS JOIN LATERAL jsonb_array_elements_text(t.value->'depends_on') dependency(name)
         WHERE t.value ? 'depends_on'
    )
    SELECT edge.task, edge.name INTO wrong FROM edge LEFT JOIN named USING (name) WHERE named.place IS NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'task % depends on "%", which is not a task of this job', wrong.task, wrong.name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    IF EXISTS (SELECT FROM jsonb_array_elements(job->'task') t(value) WHERE t.value ? 'depends_on') THEN
        INSERT INTO yardmaster.task_depend (job_id, task_id, depends_on)
        SELECT DISTINCT new_job_id, ids[t.place], ids[named.place]
          FROM jsonb_array_elements(job->'task') WITH ORDINALITY t(value, place)
         CROSS JOIN LATERAL jsonb_array_elements_text(t.value->'depends_on') dependency(name)
          JOIN (SELECT n.value->>'name' AS name, n.place FROM jsonb_array_elements(job->'task') WITH ORDINALITY n(value, place)
                 WHERE n.value ? 'name') named ON named.name = dependency.name;
    END IF;
    RETURN new_job_id;
END $$;

-- ---------------------------------------------------------------- steering

-- Each inserts a request row in the caller's transaction; the leader carries it out after the commit and writes
-- on the row what came of it. An unknown id, and another role's, is an error.

CREATE FUNCTION yardmaster.job_request(kind yardmaster.request_kind, p_job_id bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_id bigint := nextval('yardmaster.request_request_id_seq');
BEGIN
    IF p_job_id IS NULL OR NOT yardmaster.may_steer(p_job_id) THEN
        RAISE EXCEPTION 'job % does not exist', coalesce(p_job_id::text, 'NULL') USING ERRCODE = 'undefined_object';
    END IF;
    INSERT INTO yardmaster.request (request_id, kind, job_id) VALUES (new_id, kind, p_job_id);
    RETURN new_id;
END $$;

CREATE FUNCTION yardmaster.task_request(kind yardmaster.request_kind, p_task_id bigint, argument text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_job_id bigint;
    new_id bigint := nextval('yardmaster.request_request_id_seq');
BEGIN
    SELECT t.job_id INTO found_job_id FROM yardmaster.task t WHERE t.task_id = p_task_id;
    IF found_job_id IS NULL OR NOT yardmaster.may_steer(found_job_id) THEN
        RAISE EXCEPTION 'task % does not exist', coalesce(p_task_id::text, 'NULL') USING ERRCODE = 'undefined_object';
    END IF;
    INSERT INTO yardmaster.request (request_id, kind, job_id, task_id, argument)
    VALUES (new_id, kind, found_job_id, p_task_id, argument);
    RETURN new_id;
END $$;

CREATE FUNCTION yardmaster.job_cancel(job_id bigint) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT yardmaster.job_request('job_cancel', job_id) $$;
CREATE FUNCTION yardmaster.task_cancel(task_id bigint) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT yardmaster.task_request('task_cancel', task_id, NULL) $$;
CREATE FUNCTION yardmaster.job_retry(job_id bigint) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT yardmaster.job_request('job_retry', job_id) $$;
CREATE FUNCTION yardmaster.job_pause(job_id bigint) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT yardmaster.job_request('job_pause', job_id) $$;
CREATE FUNCTION yardmaster.job_resume(job_id bigint) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT yardmaster.job_request('job_resume', job_id) $$;

-- Starts nothing more on a node; what runs there ends in peace. For administrators.
CREATE FUNCTION yardmaster.node_request(kind yardmaster.request_kind, node text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_id bigint := nextval('yardmaster.request_request_id_seq');
BEGIN
    INSERT INTO yardmaster.request (request_id, kind, argument) VALUES (new_id, kind, node);
    RETURN new_id;
END $$;
CREATE FUNCTION yardmaster.node_drain(node text) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT yardmaster.node_request('node_drain', node) $$;
CREATE FUNCTION yardmaster.node_resume(node text) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT yardmaster.node_request('node_resume', node) $$;

-- Asks for what only a job that has ended takes; an unknown one is refused by job_request.
CREATE FUNCTION yardmaster.ended_job_request(kind yardmaster.request_kind, its_id bigint, done text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE its_state yardmaster.job_status;
BEGIN
    SELECT j.state INTO its_state FROM yardmaster.job j WHERE j.job_id = its_id;
    IF FOUND AND its_state NOT IN ('finished', 'cancelled', 'failed') THEN
        RAISE EXCEPTION 'job % is %: only a job that has ended can be %', its_id, its_state, done
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Cancel it first.';
    END IF;
    RETURN yardmaster.job_request(kind, its_id);
END $$;

-- Removes a job that has ended, with its tasks and their history. It is gone for people from the leader's next turn on;
-- its rows follow in small batches.
CREATE FUNCTION yardmaster.job_delete(job_id bigint) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT yardmaster.ended_job_request('job_delete', job_id, 'deleted') $$;

-- Removes what a job that has ended left behind on nodes and in its folder, whatever its clean-up policy. Again: no error.
CREATE FUNCTION yardmaster.job_cleanup(job_id bigint) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT yardmaster.ended_job_request('job_cleanup', job_id, 'cleaned up') $$;

-- Runs a failed, cancelled or unscheduled task again, with another command if one is given, which needs the right
-- to become the task's owner.
CREATE FUNCTION yardmaster.task_retry(task_id bigint, command text DEFAULT NULL) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT yardmaster.task_request('task_retry', task_id, command) $$;

-- ---------------------------------------------------------------- waiting

-- Was this task, or this job or any task of it, inserted by the transaction that asks? (The leader sees them after the commit.)
CREATE FUNCTION yardmaster.is_of_this_transaction(what text, id bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_current_xact_id_if_assigned() IS NOT NULL AND CASE what
        WHEN 'job' THEN EXISTS (SELECT FROM yardmaster.job_spec j WHERE j.job_id = id AND j.submit_xid = pg_current_xact_id_if_assigned())
            OR EXISTS (SELECT FROM yardmaster.task_of_this_transaction t WHERE t.job_id = id)
        ELSE EXISTS (SELECT FROM yardmaster.task_of_this_transaction t WHERE t.task_id = id) END $$;

-- Looks by key every 100 ms (each statement of a volatile function has a snapshot of its own) and holds a
-- snapshot while it sleeps, so it ends after wait.max_sql and points to the command line.
CREATE FUNCTION yardmaster.wait_for(what text, id bigint, desired text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reached text;
    terminal text[] := CASE what WHEN 'job' THEN ARRAY['finished', 'cancelled', 'failed']
                                 ELSE ARRAY['done', 'error', 'unscheduled', 'cancelled'] END;
    submitted xid8;
    deadline timestamptz := clock_timestamp()
        + coalesce((SELECT p.value::interval FROM yardmaster.published p WHERE p.key = 'wait.max_sql'), interval '10 minutes');
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION '%_wait cannot see changes under transaction isolation level %', what, current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state', HINT = 'Call it under READ COMMITTED.';
    END IF;
    LOOP
        IF what = 'job' THEN
            SELECT j.state::text INTO reached FROM yardmaster.job j WHERE j.job_id = id;
        ELSE
            SELECT t.status::text INTO reached FROM yardmaster.task t WHERE t.task_id = id;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION '% % does not exist', what, coalesce(id::text, 'NULL') USING ERRCODE = 'undefined_object';
        END IF;
        IF yardmaster.is_of_this_transaction(what, id) THEN
            RAISE EXCEPTION '% % was submitted in this transaction, or a task of it: that starts only after the commit', what, id
                USING ERRCODE = 'invalid_transaction_state', HINT = 'Commit first, then wait.';
        END IF;
        IF reached = desired OR (desired IS NULL AND reached = ANY (terminal)) THEN
            RETURN;
        ELSIF reached = ANY (terminal) THEN
            RAISE EXCEPTION '% % is % and will not become %', what, id, reached, desired
                USING ERRCODE = 'object_not_in_prerequisite_state';
        ELSIF clock_timestamp() > deadline THEN
            RAISE EXCEPTION '% % is still %: a wait in SQL ends after wait.max_sql', what, id, reached
                USING ERRCODE = 'query_canceled', HINT = format('Use the command line: yardmaster %s wait %s', what, id);
        END IF;
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;

CREATE FUNCTION yardmaster.job_wait(job_id bigint, desired_status yardmaster.job_status DEFAULT NULL) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT yardmaster.wait_for('job', job_id, desired_status::text) $$;
CREATE FUNCTION yardmaster.task_wait(task_id bigint, desired_status yardmaster.task_status DEFAULT NULL) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT yardmaster.wait_for('task', task_id, desired_status::text) $$;

-- ---------------------------------------------------------------- why

-- One sentence on why a task is not running; also says what it is when it has ended or runs.
CREATE FUNCTION yardmaster.task_why(task_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t record;
    j record;
    other record;
    n bigint;
    most bigint;
    its_nodes text[];
BEGIN
    SELECT v.* INTO t FROM yardmaster.task v WHERE v.task_id = task_why.task_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'task % does not exist', coalesce(task_why.task_id::text, 'NULL') USING ERRCODE = 'undefined_object';
    END IF;
    SELECT v.* INTO j FROM yardmaster.job v WHERE v.job_id = t.job_id;
    IF t.status = 'done' THEN
        RETURN format('it is done since %s', t.finished_at);
    ELSIF t.status IN ('error', 'cancelled') THEN
        RETURN format('it ended as %s at %s%s', t.status, t.finished_at,
                      coalesce(': ' || split_part(t.message, E'\n', -1), ''));
    ELSIF t.status = 'unscheduled' THEN
        SELECT p.task_id, p.status INTO other FROM yardmaster.task_depend e JOIN yardmaster.task p ON p.task_id = e.depends_on
         WHERE e.task_id = t.task_id AND p.status IN ('error', 'cancelled', 'unscheduled') ORDER BY p.status, p.task_id LIMIT 1;
        RETURN format('it will not run: its dependency, task %s, ended as %s', other.task_id, other.status);
    END IF;
    IF (SELECT r.renewed_at < clock_timestamp() - interval '15 seconds' FROM yardmaster.leader_renewal r) THEN
        RETURN format('no leader: no service has renewed its office since %s', (SELECT r.renewed_at FROM yardmaster.leader_renewal r));
    ELSIF t.status IN ('running', 'cancelling') THEN
        RETURN format('attempt %s is %s since %s%s', t.attempt, t.status, t.started_at, coalesce(', by backend ' || t.pid, ''))
            || coalesce((SELECT format(E'; its outcome is unknown while node %s is down: %s', n.name, n.reason)
                           FROM yardmaster.node n WHERE n.name = t.node AND n.state = 'down'), '');
    ELSIF t.status = 'blocked' THEN
        SELECT p.task_id, p.name, p.status INTO other FROM yardmaster.task_depend e JOIN yardmaster.task p ON p.task_id = e.depends_on
         WHERE e.task_id = t.task_id AND p.status <> 'done' AND e.refused IS NULL ORDER BY p.task_id LIMIT 1;
        IF NOT FOUND THEN
            RETURN 'it is about to be admitted';
        END IF;
        SELECT count(*) - 1 INTO n FROM yardmaster.task_depend e JOIN yardmaster.task p ON p.task_id = e.depends_on
         WHERE e.task_id = t.task_id AND p.status <> 'done' AND e.refused IS NULL;
        RETURN format('it waits for task %s%s, which is %s%s', other.task_id, coalesce(' (' || other.name || ')', ''),
                      other.status, CASE WHEN n > 0 THEN format(', and for %s more', n) ELSE '' END);
    ELSIF j.paused THEN
        RETURN format('job %s is paused', j.job_id);
    ELSIF t.not_before > clock_timestamp() THEN
        RETURN format('not before %s%s', t.not_before, CASE WHEN t.retry_count > 0
                      THEN format(', after failure %s (SQLSTATE %s): %s', t.retry_count, t.sqlstate, split_part(t.message, E'\n', -1)) ELSE '' END);
    END IF;
    SELECT r.rolname, r.rolcanlogin INTO other FROM pg_roles r WHERE r.rolname = t.owner;
    IF NOT FOUND THEN
        RETURN format('its owner, role "%s", does not exist', t.owner);
    ELSIF NOT other.rolcanlogin THEN
        RETURN format('its owner, role "%s", may not log in', t.owner);
    END IF;
    its_nodes := coalesce(t.nodes_involved, '{}') || CASE WHEN t.node IS NULL THEN '{}'::text[] ELSE ARRAY[t.node] END;
    SELECT d.name, d.state, d.reason, d.since INTO other FROM yardmaster.node d
     WHERE d.name = ANY (its_nodes) AND d.state <> 'active' ORDER BY d.name LIMIT 1;
    IF FOUND THEN
        RETURN format('node %s is %s since %s: %s', other.name, other.state, other.since, other.reason);
    END IF;
    SELECT u.used INTO n FROM yardmaster.slot_use u WHERE u.node = '';
    SELECT p.value::bigint INTO most FROM yardmaster.published p WHERE p.key = 'max_task_executors';
    IF n >= most THEN
        RETURN format('all %s slots of max_task_executors are in use', most);
    END IF;
    SELECT u.node, u.used, coalesce(d.max_task_executors, (SELECT p.value::bigint FROM yardmaster.published p
                                                           WHERE p.key = 'max_task_executors_per_node')) AS most INTO other
      FROM yardmaster.slot_use u LEFT JOIN yardmaster.node d ON d.name = u.node
     WHERE u.node = ANY (its_nodes) AND u.used >= coalesce(d.max_task_executors, (SELECT p.value::bigint FROM yardmaster.published p
                                                           WHERE p.key = 'max_task_executors_per_node')) LIMIT 1;
    IF FOUND THEN
        RETURN format('node %s is full: %s of %s slots in use%s', other.node, other.used, other.most,
               coalesce(', by task ' || (SELECT string_agg(v.task_id::text, ', ' ORDER BY v.task_id) FROM yardmaster.task v
                                          WHERE v.status IN ('running', 'cancelling')
                                            AND (v.node = other.node OR other.node = ANY (v.nodes_involved))), ''));
    END IF;
    RETURN 'it is ready and starts as soon as a session is open';
END $$;
