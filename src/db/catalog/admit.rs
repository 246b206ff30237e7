//! Admission: rows that users committed become tasks that can run.
//!
//! All statements take the window of a look: `$1` xmax and `$2` xip of the look before, `$3` the snapshot of this
//! one. They are repeatable: a task that has a state row is not admitted again. Large submissions are admitted in
//! chunks of [`CHUNK`] tasks a turn, in the order of transaction and id; the job's total is raised with the first, so it
//! cannot finish in between, and its state is rolled up after the last.
//!
//! Their shape leaves the planner no choice: what must be a look-up by key for each row is written as a scalar subquery or as
//! LATERAL with OFFSET 0, since a plan made while a table was empty is kept when it has millions of rows.

/// Tasks admitted in one turn: about a quarter of a second of work.
pub const CHUNK: i64 = 10_000;

/// Gives new jobs their state row. Wants `job_spec_submit_xid`.
pub const JOBS: &str = "
INSERT INTO yardmaster.job_state (job_id)
SELECT j.job_id FROM yardmaster.new_jobs($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot) j
    ON CONFLICT DO NOTHING";

/// Counts the new tasks of each job, once a look, before the first chunk. Wants `task_spec_submit_xid`.
pub const TOTALS: &str = "
UPDATE yardmaster.job_state j SET n_tasks = j.n_tasks + f.n
  FROM (SELECT t.job_id, count(*) AS n
          FROM yardmaster.new_tasks($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot, 0) t
         WHERE (SELECT s.task_id FROM yardmaster.task_state s WHERE s.task_id = t.task_id) IS NULL
         GROUP BY t.job_id) f
 WHERE j.job_id = f.job_id";

/// The same for a full look, where a predecessor may have counted some already. Takes only `$1`, the snapshot.
pub const TOTALS_ANEW: &str = "
UPDATE yardmaster.job_state j SET n_tasks = f.n
  FROM (SELECT u.job_id, (SELECT count(*) FROM yardmaster.task_spec t
                           WHERE t.job_id = u.job_id AND pg_visible_in_snapshot(t.submit_xid, $1::text::pg_snapshot)) AS n
          FROM (SELECT DISTINCT t.job_id FROM yardmaster.task_spec t
                 WHERE pg_visible_in_snapshot(t.submit_xid, $1::text::pg_snapshot)
                   AND (SELECT s.task_id FROM yardmaster.task_state s WHERE s.task_id = t.task_id) IS NULL) u) f
 WHERE j.job_id = f.job_id";

/// Makes the lanes that the next chunk needs. `$4` and `$5` are transaction and id of the last admitted task of this look,
/// `$6` is the chunk.
pub const LANES: &str = "
INSERT INTO yardmaster.lane (node, owner, owner_oid, nodes, candidates)
SELECT DISTINCT coalesce(f.node, ''), f.owner, f.owner_oid, yardmaster.slot_nodes(f.node, f.nodes_involved), coalesce(f.candidates, '{}')
  FROM yardmaster.next_new_tasks($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot, $4::text::xid8, $5, $6) f
 WHERE NOT EXISTS (SELECT FROM yardmaster.lane l
                    WHERE l.node = coalesce(f.node, '') AND l.owner_oid = f.owner_oid AND l.owner = f.owner
                      AND l.nodes = yardmaster.slot_nodes(f.node, f.nodes_involved) AND l.candidates = coalesce(f.candidates, '{}'))";

/// Admits the next chunk: decides blocked, runnable, or an ending at once, whatever status the row was given.
///
/// `$7` are tasks whose edges close a cycle; `$8`, `$9` and `$10` are batches (job, transaction) that exceed a tracked limit, with
/// the message. A task that cannot be admitted becomes `error` with the reason
/// (`unscheduled` if its job has failed meanwhile, `cancelled` if it was cancelled), and its dependants `unscheduled`.
/// Also those that were admitted with an earlier chunk.
/// Answers one row (NULL lane) with number, last id and last transaction of the chunk, then one per lane with its first
/// ready task.
pub const TASKS: &str = "
WITH RECURSIVE fresh AS MATERIALIZED (
    SELECT t.task_id, t.job_id, t.node, t.nodes_involved, t.owner, t.owner_oid, t.priority, t.not_before, t.submit_xid, t.candidates
      FROM yardmaster.next_new_tasks($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot, $4::text::xid8, $5, $6) t
), judged AS MATERIALIZED (
    SELECT f.*, l.lane, j.paused, j.cancel_requested OR j.delete_requested AS cancel_requested, j.status = 'failed' AS too_late, d.waiting_for, d.doomed, over.message AS over,
           CASE WHEN f.task_id = ANY ($7::bigint[]) THEN '42P19'
                WHEN f.node IS NOT NULL AND NOT EXISTS (SELECT FROM yardmaster.node_state n WHERE n.name = f.node AND n.declared) THEN '42704'
                WHEN f.candidates IS NOT NULL AND f.candidates <@ (SELECT array_agg(n.name) FROM yardmaster.node_state n WHERE n.declared) IS NOT TRUE
                     THEN '42704'
                WHEN EXISTS (SELECT FROM pg_roles r WHERE r.oid = f.owner_oid AND r.rolsuper)
                     AND EXISTS (SELECT FROM yardmaster.published p WHERE p.key = 'allow_superuser_owners' AND p.value = 'false')
                     THEN '42501'
                WHEN over.message IS NOT NULL THEN '53400' END AS refusal
      FROM fresh f
      JOIN yardmaster.job_state j ON j.job_id = f.job_id
      JOIN yardmaster.lane l ON l.node = coalesce(f.node, '') AND l.owner_oid = f.owner_oid AND l.owner = f.owner
       AND l.nodes = yardmaster.slot_nodes(f.node, f.nodes_involved) AND l.candidates = coalesce(f.candidates, '{}')
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE p.status IS DISTINCT FROM 'done') AS waiting_for,
                  coalesce(bool_or(p.status IN ('error', 'unscheduled', 'cancelled')), false) AS doomed
             FROM yardmaster.task_depend e LEFT JOIN yardmaster.task_state p ON p.task_id = e.depends_on
            WHERE e.task_id = f.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $3::text::pg_snapshot)) d
      LEFT JOIN unnest($8::bigint[], $9::text[], $10::text[]) AS over(job_id, xid, message)
             ON over.job_id = f.job_id AND over.xid::xid8 = f.submit_xid
), doomed (task_id) AS (
    SELECT j.task_id FROM judged j WHERE j.doomed OR j.refusal IS NOT NULL OR j.too_late
    UNION
    SELECT e.task_id FROM doomed d CROSS JOIN LATERAL (
           SELECT e.task_id FROM yardmaster.task_depend e
            WHERE e.depends_on = d.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $3::text::pg_snapshot) OFFSET 0) e
), decided AS (
    SELECT j.*, CASE WHEN j.cancel_requested THEN 'cancelled'
                     WHEN j.refusal IS NOT NULL AND NOT j.too_late THEN 'error'
                     WHEN EXISTS (SELECT FROM doomed d WHERE d.task_id = j.task_id) THEN 'unscheduled'
                     WHEN j.waiting_for > 0 THEN 'blocked'
                     ELSE 'runnable' END::yardmaster.task_status AS status
      FROM judged j
), admitted AS (
    INSERT INTO yardmaster.task_state (task_id, job_id, lane, queue_rank, status, away, ready, waiting_for, not_before,
                                       finished_at, sqlstate, message)
    SELECT d.task_id, d.job_id, d.lane, -d.priority, d.status, d.node IS NOT NULL,
           d.status = 'runnable' AND NOT d.paused AND coalesce(d.not_before <= now(), true), d.waiting_for,
           CASE WHEN d.status IN ('blocked', 'runnable') AND d.not_before > now() THEN d.not_before END,
           CASE WHEN d.status IN ('error', 'unscheduled', 'cancelled') THEN now() END,
           CASE WHEN d.status = 'error' THEN d.refusal END,
           CASE WHEN d.status = 'error' THEN CASE d.refusal
                WHEN '53400' THEN d.over
                WHEN '42P19' THEN 'ERROR: the dependencies of this task close a cycle'
                WHEN '42704' THEN format('ERROR: node %I is not declared', coalesce((
                     SELECT c FROM unnest(d.candidates) c WHERE NOT EXISTS (SELECT FROM yardmaster.node_state n WHERE n.name = c AND n.declared) LIMIT 1),
                     d.node))
                     || E'\\nHINT: Declare it as [nodes.NAME] in Settings.toml, reload, and retry the task.'
                ELSE format('ERROR: role %I is a superuser and may not own tasks', d.owner)
                     || E'\\nHINT: Name another owner, or set allow_superuser_owners = true in Settings.toml.' END END
      FROM decided d
    RETURNING task_id, job_id, lane, queue_rank, status, ready
), stranded AS (
    UPDATE yardmaster.task_state s SET status = 'unscheduled', finished_at = now()
      FROM doomed d WHERE s.task_id = d.task_id AND s.status = 'blocked'
    RETURNING s.job_id
), counted AS (
    UPDATE yardmaster.job_state j SET n_bad = j.n_bad + c.n
      FROM (SELECT x.job_id, count(*) AS n
              FROM (SELECT a.job_id FROM admitted a WHERE a.status IN ('error', 'unscheduled', 'cancelled')
                    UNION ALL SELECT s.job_id FROM stranded s) x GROUP BY x.job_id) c
     WHERE j.job_id = c.job_id
)
SELECT NULL::integer AS lane, (SELECT count(*) FROM fresh)::integer AS queue_rank, l.task_id, l.submit_xid::text
  FROM (SELECT 1) one LEFT JOIN (SELECT f.task_id, f.submit_xid FROM fresh f ORDER BY f.submit_xid DESC, f.task_id DESC LIMIT 1) l ON true
UNION ALL
(SELECT DISTINCT ON (a.lane) a.lane, a.queue_rank, a.task_id, NULL FROM admitted a WHERE a.ready
  ORDER BY a.lane, a.queue_rank, a.task_id)";

/// Nodes with a limit of tracked tasks, and how many they have. Wants `task_state_tracked`.
pub const TRACKED: &str = "
SELECT n.name, n.max_tracked_tasks::bigint,
       (SELECT count(*) FROM yardmaster.lane l JOIN yardmaster.task_state s ON s.lane = l.lane
         WHERE (l.node = n.name OR n.name = ANY (l.candidates)) AND s.away AND s.status IN ('blocked', 'runnable', 'running', 'cancelling'))
  FROM yardmaster.node_state n WHERE n.declared AND n.max_tracked_tasks IS NOT NULL";

/// The new tasks by job, transaction and node (`$4`: those with a limit), oldest first. The last column says of a batch that a
/// predecessor began to admit whether it was refused.
pub const BATCHES: &str = "
SELECT t.job_id, t.submit_xid::text, c.node, count(*),
       CASE WHEN $5 THEN (SELECT s.sqlstate IS NOT DISTINCT FROM '53400' FROM yardmaster.task_spec o JOIN yardmaster.task_state s ON s.task_id = o.task_id
                           WHERE o.job_id = t.job_id AND o.submit_xid = t.submit_xid LIMIT 1) END
  FROM yardmaster.new_tasks($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot, 0) t
 CROSS JOIN LATERAL unnest(coalesce(t.candidates, ARRAY[t.node])) c(node)
 WHERE c.node = ANY ($4::text[])
   AND (SELECT s.task_id FROM yardmaster.task_state s WHERE s.task_id = t.task_id) IS NULL
 GROUP BY t.job_id, t.submit_xid, c.node ORDER BY min(t.task_id)";

/// The message of tasks whose batch a predecessor had begun to refuse.
pub const REFUSED_BEFORE: &str = "ERROR: a node had too many tracked tasks for this job's\n\
     HINT: Submit them again when others have ended, or raise max_tracked_tasks of the node in Settings.toml.";

/// Admits edges onto tasks that were admitted before. `$4` are tasks whose edges close a cycle, `$5` is true on a full
/// look (then every edge onto a task that has not started counts anew, since nobody knows which were counted).
///
/// An edge onto a started task is marked refused; otherwise the dependant's unfinished dependencies are counted
/// anew. Answers lanes with their first ready task (a recount can make one ready again).
pub const LATE_EDGES: &str = "
WITH RECURSIVE edge AS MATERIALIZED (
    SELECT e.task_id, e.depends_on FROM yardmaster.new_edges($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot) e
     WHERE e.refused IS NULL
), refused AS (
    UPDATE yardmaster.task_depend e SET refused = CASE WHEN e.task_id = ANY ($4::bigint[]) THEN 'the edge closes a cycle'
                                                       ELSE 'the task had started' END
      FROM edge x JOIN yardmaster.task_state s ON s.task_id = x.task_id
      LEFT JOIN yardmaster.task_state p ON p.task_id = x.depends_on
     WHERE e.task_id = x.task_id AND e.depends_on = x.depends_on AND s.attempt > 0 AND p.status IS DISTINCT FROM 'done'
), recount AS MATERIALIZED (
    SELECT s.task_id, s.job_id, c.waiting_for, c.doomed, s.task_id = ANY ($4::bigint[]) AS poisoned
      FROM (SELECT DISTINCT x.task_id FROM edge x) x
      JOIN yardmaster.task_state s ON s.task_id = x.task_id AND s.attempt = 0 AND s.status IN ('blocked', 'runnable')
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE p.status IS DISTINCT FROM 'done') AS waiting_for,
                  coalesce(bool_or(p.status IN ('error', 'unscheduled', 'cancelled')), false) AS doomed
             FROM yardmaster.task_depend e LEFT JOIN yardmaster.task_state p ON p.task_id = e.depends_on
            WHERE e.task_id = s.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $3::text::pg_snapshot)) c
     WHERE $5 OR c.waiting_for > 0
), doomed (task_id) AS (
    SELECT r.task_id FROM recount r WHERE r.doomed OR r.poisoned
    UNION
    SELECT e.task_id FROM doomed d CROSS JOIN LATERAL (
           SELECT e.task_id FROM yardmaster.task_depend e
            WHERE e.depends_on = d.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $3::text::pg_snapshot) OFFSET 0) e
), changed AS (
    UPDATE yardmaster.task_state s
       SET waiting_for = coalesce(n.waiting_for, s.waiting_for),
           status = n.status, ready = n.status = 'runnable' AND NOT n.paused AND coalesce(s.not_before <= now(), true),
           finished_at = CASE WHEN n.status IN ('error', 'unscheduled') THEN now() END,
           sqlstate = CASE WHEN n.status = 'error' THEN '42P19' END,
           message = CASE WHEN n.status = 'error' THEN 'ERROR: the dependencies of this task close a cycle' END
      FROM (SELECT t.task_id, r.waiting_for, j.paused,
                   CASE WHEN r.poisoned THEN 'error' WHEN d.task_id IS NOT NULL THEN 'unscheduled'
                        WHEN r.waiting_for > 0 THEN 'blocked' ELSE 'runnable' END::yardmaster.task_status AS status
              FROM (SELECT r.task_id FROM recount r UNION SELECT d.task_id FROM doomed d) i
              JOIN yardmaster.task_state t ON t.task_id = i.task_id AND t.attempt = 0 AND t.status IN ('blocked', 'runnable')
              JOIN yardmaster.job_state j ON j.job_id = t.job_id
              LEFT JOIN recount r ON r.task_id = i.task_id
              LEFT JOIN doomed d ON d.task_id = i.task_id) n
     WHERE s.task_id = n.task_id
    RETURNING s.task_id, s.job_id, s.lane, s.queue_rank, s.status, s.ready
), counted AS (
    UPDATE yardmaster.job_state j SET n_bad = j.n_bad + c.n
      FROM (SELECT x.job_id, count(*) AS n FROM changed x WHERE x.status IN ('error', 'unscheduled') GROUP BY x.job_id) c
     WHERE j.job_id = c.job_id
)
SELECT DISTINCT ON (x.lane) x.lane, x.queue_rank, x.task_id FROM changed x WHERE x.ready
 ORDER BY x.lane, x.queue_rank, x.task_id";

/// Called with the first chunk of a look and after the last of several. Rolls up the jobs that the look brought or added to: a job without tasks is finished, a finished one that got new
/// tasks runs again. Answers the jobs that changed.
pub const ROLLUP: &str = "
UPDATE yardmaster.job_state j
   SET status = r.status,
       finished_at = CASE WHEN r.status IN ('finished', 'cancelled', 'failed') THEN now() END
  FROM (SELECT s.job_id, yardmaster.job_status_of(s.cancel_requested, s.n_tasks, s.n_done, s.n_bad, s.started_at IS NOT NULL) AS status
          FROM (SELECT j.job_id FROM yardmaster.new_jobs($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot) j
                UNION
                SELECT t.job_id FROM yardmaster.new_tasks($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot, 0) t
                UNION
                SELECT e.job_id FROM yardmaster.new_edges($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot) e) n
          JOIN yardmaster.job_state s ON s.job_id = n.job_id) r
 WHERE j.job_id = r.job_id AND j.status <> r.status
RETURNING j.job_id, j.status::text";

/// Lanes made since `$1` (their ids grow).
pub const NEW_LANES: &str = "
SELECT l.lane, l.node, l.owner::text, l.nodes, l.candidates <> '{}', l.owner_oid FROM yardmaster.lane l WHERE l.lane > $1 ORDER BY l.lane";

/// Makes the lanes that [`MOVE`] needs.
pub const MOVE_LANES: &str = "
INSERT INTO yardmaster.lane (node, owner, owner_oid, nodes, candidates)
SELECT DISTINCT m.node, m.owner, m.owner_oid, m.nodes, m.candidates FROM yardmaster.tasks_to_move() m
 WHERE NOT EXISTS (SELECT FROM yardmaster.lane l
                    WHERE l.node = m.node AND l.owner_oid = m.owner_oid AND l.owner = m.owner AND l.nodes = m.nodes
                      AND l.candidates = m.candidates)";

/// Moves tasks whose node is down, drained or gone to their next candidate. Answers lanes with their first ready task.
pub const MOVE: &str = "
WITH moved AS (
    UPDATE yardmaster.task_state s SET lane = l.lane
      FROM yardmaster.tasks_to_move() m
      JOIN yardmaster.lane l ON l.node = m.node AND l.owner_oid = m.owner_oid AND l.owner = m.owner AND l.nodes = m.nodes
       AND l.candidates = m.candidates
     WHERE s.task_id = m.task_id
    RETURNING s.lane, s.queue_rank, s.task_id
)
SELECT DISTINCT ON (m.lane) m.lane, m.queue_rank, m.task_id FROM moved m ORDER BY m.lane, m.queue_rank, m.task_id";
