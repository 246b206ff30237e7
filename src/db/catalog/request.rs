//! Requests: what people asked for, carried out in the leader's turn.
//!
//! Each statement takes arrays, changes tasks and counters, and is harmless when repeated: a job that has ended is not
//! cancelled again, a task that is not badly ended is not retried.

use tokio_postgres::Client;

use super::super::error::DbError;
use crate::model::JobId;

/// Cancels jobs (`$1`): tasks that are not running are cancelled at once, running ones become cancelling.
/// Answers the live tasks. Wants `task_state_job`.
pub const CANCEL_JOBS: &str = "
WITH chosen AS (
    UPDATE yardmaster.job_state j
       SET cancel_requested = true,
           n_bad = j.n_bad + (SELECT count(*) FROM yardmaster.task_state s WHERE s.job_id = j.job_id AND s.status IN ('blocked', 'runnable'))
     WHERE j.job_id = ANY ($1) AND j.status NOT IN ('finished', 'cancelled', 'failed') AND NOT j.cancel_requested
    RETURNING j.job_id
), changed AS (
    UPDATE yardmaster.task_state s
       SET status = CASE s.status WHEN 'running' THEN 'cancelling' ELSE 'cancelled' END::yardmaster.task_status,
           ready = false, not_before = NULL, finished_at = CASE WHEN s.status <> 'running' THEN now() END
      FROM chosen c WHERE s.job_id = c.job_id AND s.status IN ('blocked', 'runnable', 'running')
    RETURNING s.task_id, s.status
)
SELECT c.task_id FROM changed c WHERE c.status = 'cancelling'";

/// Cancels single tasks (`$1`); their dependants become unscheduled (those of a running task when it has ended). `$2`
/// is the admitted snapshot. Answers the live tasks.
pub const CANCEL_TASKS: &str = "
WITH RECURSIVE changed AS (
    UPDATE yardmaster.task_state s
       SET status = CASE s.status WHEN 'running' THEN 'cancelling' ELSE 'cancelled' END::yardmaster.task_status,
           ready = false, not_before = NULL, finished_at = CASE WHEN s.status <> 'running' THEN now() END
     WHERE s.task_id = ANY ($1) AND s.status IN ('blocked', 'runnable', 'running')
    RETURNING s.task_id, s.job_id, s.status
), down (task_id) AS (
    SELECT e.task_id FROM changed c CROSS JOIN LATERAL (
           SELECT e.task_id FROM yardmaster.task_depend e
            WHERE e.depends_on = c.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $2::text::pg_snapshot) OFFSET 0) e
     WHERE c.status = 'cancelled'
    UNION
    SELECT e.task_id FROM down d CROSS JOIN LATERAL (
           SELECT e.task_id FROM yardmaster.task_depend e
            WHERE e.depends_on = d.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $2::text::pg_snapshot) OFFSET 0) e
), unscheduled AS (
    UPDATE yardmaster.task_state s SET status = 'unscheduled', ready = false, finished_at = now(), not_before = NULL
      FROM down d WHERE s.task_id = d.task_id AND s.status IN ('blocked', 'runnable') AND s.task_id <> ALL ($1)
    RETURNING s.task_id, s.job_id
), counted AS (
    UPDATE yardmaster.job_state j SET n_bad = j.n_bad + c.n
      FROM (SELECT x.job_id, count(*) AS n FROM (SELECT c.job_id FROM changed c WHERE c.status = 'cancelled'
                                                 UNION ALL SELECT u.job_id FROM unscheduled u) x GROUP BY x.job_id) c
     WHERE j.job_id = c.job_id
)
SELECT c.task_id FROM changed c WHERE c.status = 'cancelling'";

/// Runs the badly ended tasks of jobs (`$1`) again, and single tasks (`$2`, with changed commands `$3`) together with
/// their unscheduled dependants. `$4` is the admitted snapshot. A task that waits out its back-off runs at once, and keeps
/// its count of failures. A job that had ended has its whole timeout again.
///
/// A task one of whose dependencies ended badly and is not retried with it stays as it is, so that no task waits for
/// what will never come; one whose dependencies close a cycle can never run. A job that is still cancelling is left alone. Answers lanes with their first ready task.
pub const RETRY: &str = "
WITH RECURSIVE named AS (
    SELECT * FROM unnest($2::bigint[], $3::text[]) AS n(task_id, command)
), wanted (task_id) AS (
    SELECT s.task_id FROM yardmaster.task_state s
     WHERE s.job_id = ANY ($1) AND s.sqlstate IS DISTINCT FROM '42P19'
       AND (s.status IN ('error', 'cancelled', 'unscheduled') OR s.status = 'runnable' AND NOT s.ready AND s.attempt > 0 AND s.not_before IS NOT NULL)
    UNION
    SELECT s.task_id FROM named n JOIN yardmaster.task_state s ON s.task_id = n.task_id
     WHERE s.sqlstate IS DISTINCT FROM '42P19'
       AND (s.status IN ('error', 'cancelled', 'unscheduled') OR s.status = 'runnable' AND NOT s.ready AND s.attempt > 0 AND s.not_before IS NOT NULL)
    UNION
    SELECT e.task_id FROM wanted w CROSS JOIN LATERAL (
           SELECT e.task_id FROM yardmaster.task_depend e
            WHERE e.depends_on = w.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $4::text::pg_snapshot) OFFSET 0) e
      JOIN yardmaster.task_state s ON s.task_id = e.task_id
     WHERE s.status = 'unscheduled'
), hopeless (task_id) AS (
    SELECT w.task_id FROM wanted w JOIN yardmaster.task_depend e ON e.task_id = w.task_id
      JOIN yardmaster.task_state p ON p.task_id = e.depends_on
     WHERE e.refused IS NULL AND pg_visible_in_snapshot(e.submit_xid, $4::text::pg_snapshot)
       AND p.status IN ('error', 'cancelled', 'unscheduled') AND NOT EXISTS (SELECT FROM wanted o WHERE o.task_id = p.task_id)
    UNION
    SELECT e.task_id FROM hopeless h CROSS JOIN LATERAL (
           SELECT e.task_id FROM yardmaster.task_depend e
            WHERE e.depends_on = h.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $4::text::pg_snapshot) OFFSET 0) e
), again AS MATERIALIZED (
    SELECT s.task_id, j.paused, n.command, s.status <> 'runnable' AS ended,
           (SELECT count(*) FROM yardmaster.task_depend e LEFT JOIN yardmaster.task_state p ON p.task_id = e.depends_on
             WHERE e.task_id = s.task_id AND e.refused IS NULL AND p.status IS DISTINCT FROM 'done'
               AND pg_visible_in_snapshot(e.submit_xid, $4::text::pg_snapshot))::integer AS waiting_for
      FROM wanted w JOIN yardmaster.task_state s ON s.task_id = w.task_id
      JOIN yardmaster.job_state j ON j.job_id = s.job_id AND j.status <> 'cancelling'
      LEFT JOIN named n ON n.task_id = w.task_id
     WHERE NOT EXISTS (SELECT FROM hopeless h WHERE h.task_id = w.task_id)
), changed AS (
    UPDATE yardmaster.task_state s
       SET status = CASE WHEN a.waiting_for = 0 THEN 'runnable' ELSE 'blocked' END::yardmaster.task_status,
           ready = a.waiting_for = 0 AND NOT a.paused, waiting_for = a.waiting_for, not_before = NULL, finished_at = NULL,
           retry_count = CASE WHEN a.ended THEN 0 ELSE s.retry_count END,
           interruptions = CASE WHEN a.ended THEN 0 ELSE s.interruptions END, sqlstate = NULL, message = NULL, command = coalesce(a.command, s.command)
      FROM again a WHERE s.task_id = a.task_id
    RETURNING s.task_id, s.job_id, s.lane, s.queue_rank, s.ready, a.ended
), counted AS (
    UPDATE yardmaster.job_state j
       SET n_bad = j.n_bad - c.n, cancel_requested = false, cleanup_requested = false,
           deadline = CASE WHEN j.finished_at IS NOT NULL AND j.started_at IS NOT NULL THEN now() + p.timeout ELSE j.deadline END
      FROM (SELECT c.job_id, count(*) FILTER (WHERE c.ended) AS n FROM changed c GROUP BY c.job_id) c
      JOIN yardmaster.job_spec p ON p.job_id = c.job_id
     WHERE j.job_id = c.job_id
)
SELECT DISTINCT ON (c.lane) c.lane, c.queue_rank, c.task_id FROM changed c WHERE c.ready
 ORDER BY c.lane, c.queue_rank, c.task_id";

/// Pauses jobs (`$1`): none of their tasks is claimed any more; running ones go on.
pub const PAUSE: &str = "
WITH chosen AS (
    UPDATE yardmaster.job_state j SET paused = true
     WHERE j.job_id = ANY ($1) AND NOT j.paused AND j.status NOT IN ('finished', 'cancelled', 'failed') RETURNING j.job_id
)
UPDATE yardmaster.task_state s SET ready = false FROM chosen c WHERE s.job_id = c.job_id AND s.ready";

/// Resumes jobs (`$1`). Answers lanes with their first ready task.
pub const RESUME: &str = "
WITH chosen AS (
    UPDATE yardmaster.job_state j SET paused = false WHERE j.job_id = ANY ($1) AND j.paused RETURNING j.job_id
), changed AS (
    UPDATE yardmaster.task_state s SET ready = true, not_before = NULL
      FROM chosen c
     WHERE s.job_id = c.job_id AND s.status = 'runnable' AND NOT s.ready AND coalesce(s.not_before <= now(), true)
    RETURNING s.lane, s.queue_rank, s.task_id
)
SELECT DISTINCT ON (c.lane) c.lane, c.queue_rank, c.task_id FROM changed c ORDER BY c.lane, c.queue_rank, c.task_id";

/// Hides jobs (`$1`) that have ended, for ever, and sets their keys free; retention removes their rows in its next batches.
pub const DELETE: &str = "
WITH hidden AS (
    UPDATE yardmaster.job_state j SET delete_requested = true
     WHERE j.job_id = ANY ($1) AND j.status IN ('finished', 'cancelled', 'failed')
    RETURNING j.job_id
)
UPDATE yardmaster.job_spec p SET key = NULL FROM hidden h WHERE p.job_id = h.job_id AND p.key IS NOT NULL";

/// Asks for the clean-up of jobs (`$1`) that have ended.
pub const CLEANUP: &str = "
UPDATE yardmaster.job_state j SET cleanup_requested = true
 WHERE j.job_id = ANY ($1) AND j.status IN ('finished', 'cancelled', 'failed') AND NOT j.cleanup_requested";

/// Drains and resumes nodes: names (`$1`), whether to drain (`$2`), by which requests (`$3`).
pub const NODES: &str = "
UPDATE yardmaster.node_state n
   SET draining = g.drain, draining_since = CASE WHEN g.drain THEN now() END, drained_by = CASE WHEN g.drain THEN r.requested_by END
  FROM unnest($1::text[], $2::boolean[], $3::bigint[]) AS g(name, drain, request_id)
  JOIN yardmaster.request r ON r.request_id = g.request_id
 WHERE n.name = g.name AND n.draining <> g.drain";

/// Writes on requests about nodes (`$1`) what came of them.
pub const ANSWER_NODES: &str = "
UPDATE yardmaster.request r
   SET handled_at = now(),
       outcome = coalesce((SELECT format('node %s is %s', n.name, CASE WHEN n.draining THEN 'draining' ELSE 'active' END)
                             FROM yardmaster.node_state n WHERE n.name = r.argument), format('node %s does not exist', r.argument))
 WHERE r.request_id = ANY ($1) AND r.job_id IS NULL AND r.handled_at IS NULL";

/// The nodes that are drained.
pub const DRAINING: &str = "SELECT n.name FROM yardmaster.node_state n WHERE n.draining";

/// Asks for the cancellation of jobs whose time is over; the next look finds the requests. Wants `job_state_deadline`.
pub const EXPIRE: &str = "
WITH expired AS (
    UPDATE yardmaster.job_state j SET deadline = NULL WHERE j.deadline <= now()
    RETURNING j.job_id, j.status NOT IN ('finished', 'cancelled', 'failed') AND NOT j.cancel_requested AS open
)
INSERT INTO yardmaster.request (kind, job_id) SELECT 'job_cancel', e.job_id FROM expired e WHERE e.open";

/// Writes on request rows (`$1`) what came of them: the state that the job, or task, has now.
pub const ANSWER: &str = "
UPDATE yardmaster.request r
   SET handled_at = now(),
       outcome = CASE WHEN j.delete_requested THEN format('job %s is deleted', r.job_id)
                      WHEN r.task_id IS NULL THEN format('job %s is %s', r.job_id, j.status) || CASE WHEN j.paused THEN ', paused' ELSE '' END
                      ELSE coalesce('task ' || r.task_id || ' is ' || (SELECT s.status FROM yardmaster.task_state s WHERE s.task_id = r.task_id),
                                    format('task %s does not exist', r.task_id)) END
  FROM yardmaster.job_state j
 WHERE r.request_id = ANY ($1) AND j.job_id = r.job_id AND r.handled_at IS NULL";

const ASK_CANCEL: &str = "
INSERT INTO yardmaster.request (kind, job_id) SELECT 'job_cancel', j FROM unnest($1::bigint[]) j";

/// The statements of this family that are not part of a turn, for the test that prepares them all.
pub const STATEMENTS: &[(&str, &str)] = &[("ASK_CANCEL", ASK_CANCEL)];

/// Asks for the cancellation of jobs, as `job_cancel` does.
///
/// # Errors
/// When the statement fails; nothing was asked then.
pub async fn ask_cancel(client: &Client, jobs: &[JobId]) -> Result<(), DbError> {
    let ids: Vec<i64> = jobs.iter().map(|j| j.0).collect();
    client.execute(ASK_CANCEL, &[&ids]).await.map_err(DbError::postgres("ask for cancellation"))?;
    Ok(())
}
