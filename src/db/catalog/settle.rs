//! Settlement: what follows from attempts that ended, in one statement.
//!
//! ```text
//!            given                 the ended attempts, guarded by (task, attempt, still live): a late writer
//!              │                   changes nothing, and settling twice is settling once
//!           changed                status, counters, not_before; a cancelling task becomes cancelled unless done
//!      ┌───────┼─────────┐
//!   logged    down      released   history row │ dependants of bad endings, transitively: unscheduled │ dependants
//!      │       │         │         of done tasks: one count less for each edge, runnable at zero
//!      └───────┼─────────┘
//!           counted                job counters, so that a job's state never needs a count over its tasks
//! ```
//! An edge counts only if it is visible in the snapshot up to which this leader has admitted (`$11`): one that
//! committed later was not counted into `waiting_for`, and its own admission will find the parent as it is then.
//! Numbers that somebody wrote by hand stop growing instead of failing the turn, and a history row that is there already
//! is left alone: one bad row must not stop the others.
//! Cost: proportional to the attempts and to the edges they release. (The status is compared as text so that the planner
//! takes each task by its key: by the short index of live ones it would compare all of them with all that are given.)

use std::time::Duration;

use tokio_postgres::types::ToSql;

use crate::model::{Ending, Outcome, Settlement};

/// Called in each turn that settles. Locks only rows that the leader writes. Wants the primary keys of `task_state` and
/// `job_state`, and `task_depend_dependants`. Answers lanes with their first task that became ready.
pub const SETTLE: &str = "
WITH RECURSIVE given AS (
    SELECT * FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
                         $8::text[], $9::integer[], $10::boolean[], $12::bigint[])
           AS g(task_id, attempt, ending, outcome, sqlstate, message, delay_ms, node, pid, revoked, ran_us)
), changed AS (
    UPDATE yardmaster.task_state s
       SET status = CASE WHEN g.ending = 'done' THEN 'done'
                         WHEN s.status = 'cancelling' THEN 'cancelled'
                         WHEN g.ending = 'error' THEN 'error'
                         ELSE 'runnable' END::yardmaster.task_status,
           ready = s.status = 'running' AND g.ending IN ('retry', 'again') AND g.delay_ms = 0 AND NOT j.paused,
           not_before = CASE WHEN s.status = 'running' AND g.ending IN ('retry', 'again') AND g.delay_ms > 0
                             THEN now() + g.delay_ms * interval '1 millisecond' END,
           retry_count = least(s.retry_count, 2147483646) + (g.outcome = 'failed' AND s.status = 'running')::integer,
           interruptions = least(s.interruptions, 2147483646) + (g.outcome = 'interrupted')::integer,
           series = least(s.series, 2147483646) + g.revoked::integer,
           attempt = s.attempt - (g.outcome = 'withdrawn' AND s.status = 'running')::integer,
           pid = NULL, backend_start = NULL, prefetched = false,
           started_at = CASE WHEN g.ran_us IS NULL THEN s.started_at
                             ELSE greatest(s.started_at, now() - g.ran_us * interval '1 microsecond') END,
           finished_at = CASE WHEN s.status = 'cancelling' OR g.ending IN ('done', 'error') THEN now() END
      FROM given g, yardmaster.job_state j
     WHERE s.task_id = g.task_id AND s.attempt = g.attempt AND s.status::text IN ('running', 'cancelling') AND j.job_id = s.job_id
    RETURNING s.task_id, s.job_id, s.lane, s.queue_rank, s.status, s.ready, s.attempt, s.started_at,
              g.outcome, g.sqlstate, g.message, g.node, g.pid
), logged AS (
    INSERT INTO yardmaster.attempt_log (task_id, attempt, node, pid, outcome, sqlstate, message, started_at, ended_at)
    SELECT c.task_id, c.attempt, c.node, c.pid,
           CASE WHEN c.outcome = 'done' THEN 'done' WHEN c.status = 'cancelled' THEN 'cancelled'
                WHEN c.outcome = 'failed' THEN 'failed' ELSE 'interrupted' END::yardmaster.attempt_outcome,
           c.sqlstate, c.message, c.started_at, now()
      FROM changed c WHERE c.outcome <> 'withdrawn' OR c.status = 'cancelled'
    ON CONFLICT DO NOTHING
), down (task_id) AS (
    SELECT e.task_id FROM changed c CROSS JOIN LATERAL (
           SELECT e.task_id FROM yardmaster.task_depend e
            WHERE e.depends_on = c.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $11::text::pg_snapshot) OFFSET 0) e
     WHERE c.status IN ('error', 'cancelled')
    UNION
    SELECT e.task_id FROM down d CROSS JOIN LATERAL (
           SELECT e.task_id FROM yardmaster.task_depend e
            WHERE e.depends_on = d.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $11::text::pg_snapshot) OFFSET 0) e
), unscheduled AS (
    UPDATE yardmaster.task_state s SET status = 'unscheduled', ready = false, finished_at = now(), not_before = NULL
      FROM down d WHERE s.task_id = d.task_id AND s.status IN ('blocked', 'runnable')
    RETURNING s.task_id, s.job_id
), released AS (
    UPDATE yardmaster.task_state s
       SET waiting_for = s.waiting_for - e.n,
           status = CASE WHEN s.waiting_for = e.n THEN 'runnable' ELSE 'blocked' END::yardmaster.task_status,
           ready = s.waiting_for = e.n AND NOT j.paused AND coalesce(s.not_before <= now(), true)
      FROM (SELECT e.task_id, count(*)::integer AS n FROM changed c CROSS JOIN LATERAL (
           SELECT e.task_id FROM yardmaster.task_depend e
            WHERE e.depends_on = c.task_id AND e.refused IS NULL
              AND pg_visible_in_snapshot(e.submit_xid, $11::text::pg_snapshot) OFFSET 0) e
             WHERE c.status = 'done'
             GROUP BY e.task_id) e, yardmaster.job_state j
     WHERE s.task_id = e.task_id AND s.status = 'blocked' AND j.job_id = s.job_id
       AND NOT EXISTS (SELECT FROM down d WHERE d.task_id = s.task_id)
    RETURNING s.task_id, s.job_id, s.lane, s.queue_rank, s.ready
), counted AS (
    UPDATE yardmaster.job_state j SET n_done = j.n_done + c.done, n_bad = j.n_bad + c.bad
      FROM (SELECT x.job_id, count(*) FILTER (WHERE x.done) AS done, count(*) FILTER (WHERE NOT x.done) AS bad
              FROM (SELECT c.job_id, c.status = 'done' AS done FROM changed c WHERE c.status IN ('done', 'error', 'cancelled')
                    UNION ALL SELECT u.job_id, false FROM unscheduled u) x GROUP BY x.job_id) c
     WHERE j.job_id = c.job_id
)
SELECT DISTINCT ON (x.lane) x.lane, x.queue_rank, x.task_id
  FROM (SELECT r.lane, r.queue_rank, r.task_id FROM released r WHERE r.ready
        UNION ALL SELECT c.lane, c.queue_rank, c.task_id FROM changed c WHERE c.ready) x
 ORDER BY x.lane, x.queue_rank, x.task_id";

/// Derives the state of jobs from their counters. Called last in a turn for the jobs it touched. Answers changes.
pub const ROLLUP: &str = "
UPDATE yardmaster.job_state j
   SET status = r.status,
       finished_at = CASE WHEN r.status IN ('finished', 'cancelled', 'failed') THEN now() END
  FROM (SELECT s.job_id, yardmaster.job_status_of(s.cancel_requested, s.n_tasks, s.n_done, s.n_bad, s.started_at IS NOT NULL) AS status
          FROM yardmaster.job_state s WHERE s.job_id = ANY ($1)) r
 WHERE j.job_id = r.job_id AND j.status <> r.status
RETURNING j.job_id, j.status::text";

/// Makes delayed tasks ready whose time has come, at most 5,000 a turn. Those of paused jobs lose their date instead:
/// resuming makes them ready. Wants `task_state_delayed`.
pub const PROMOTE: &str = "
WITH promoted AS (
    UPDATE yardmaster.task_state s SET ready = NOT j.paused, not_before = NULL
      FROM yardmaster.job_state j
     WHERE s.task_id IN (SELECT d.task_id FROM yardmaster.task_state d
                          WHERE d.status = 'runnable' AND NOT d.ready AND d.not_before IS NOT NULL AND d.not_before <= now()
                          ORDER BY d.not_before LIMIT 5000)
       AND j.job_id = s.job_id
    RETURNING s.lane, s.queue_rank, s.task_id, s.ready
)
SELECT DISTINCT ON (p.lane) p.lane, p.queue_rank, p.task_id FROM promoted p WHERE p.ready
 ORDER BY p.lane, p.queue_rank, p.task_id";

/// How long until the next delayed task is due, in milliseconds (rounded up); NULL for none.
pub const NEXT_DUE: &str = "
SELECT ceil(extract(epoch FROM n.not_before - clock_timestamp()) * 1000)::bigint
  FROM (SELECT d.not_before FROM yardmaster.task_state d
         WHERE d.status = 'runnable' AND NOT d.ready AND d.not_before IS NOT NULL AND d.not_before < 'infinity'
         ORDER BY d.not_before LIMIT 1) n";

/// The parallel arrays that [`SETTLE`] takes.
#[derive(Debug, Default)]
pub struct Given {
    task: Vec<i64>,
    attempt: Vec<i32>,
    ending: Vec<&'static str>,
    outcome: Vec<&'static str>,
    sqlstate: Vec<Option<String>>,
    message: Vec<String>,
    delay_ms: Vec<i64>,
    node: Vec<String>,
    pid: Vec<Option<i32>>,
    revoked: Vec<bool>,
    ran_us: Vec<Option<i64>>,
}

impl Given {
    /// Lays out settlements; messages go through `store`, which makes them fit the catalog's encoding.
    pub fn new(settlements: &[Settlement], store: impl Fn(&str) -> String) -> Given {
        let mut given = Given::default();
        for s in settlements {
            let revoked = match s.outcome {
                Outcome::Failed { revoked, .. } | Outcome::Interrupted { revoked, .. } => revoked,
                Outcome::Done { .. } | Outcome::Withdrawn => false,
            };
            let (sqlstate, message) = match &s.outcome {
                Outcome::Done { message, recorded: _ } | Outcome::Interrupted { message, revoked: _ } => {
                    (None, message.as_str())
                }
                Outcome::Failed { sqlstate, message, revoked: _ } => {
                    (Some(sqlstate.clone()), message.as_str())
                }
                Outcome::Withdrawn => (None, ""),
            };
            let (ending, delay) = match s.ending {
                Ending::Done => ("done", Duration::ZERO),
                Ending::Error => ("error", Duration::ZERO),
                Ending::Retry(delay) => ("retry", delay),
                Ending::Again(delay) => ("again", delay),
            };
            given.task.push(s.task.0);
            given.attempt.push(s.attempt);
            given.ending.push(ending);
            given.outcome.push(s.outcome.name());
            given.sqlstate.push(sqlstate);
            given.message.push(store(message));
            given.delay_ms.push(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
            given.node.push(s.node.clone());
            given.pid.push(s.pid);
            given.revoked.push(revoked);
            given.ran_us.push(s.ran.map(|ran| i64::try_from(ran.as_micros()).unwrap_or(i64::MAX)));
        }
        given
    }

    /// The parameters of [`SETTLE`], with the admitted snapshot.
    pub fn params<'a>(&'a self, snapshot: &'a String) -> [&'a (dyn ToSql + Sync); 12] {
        [
            &self.task,
            &self.attempt,
            &self.ending,
            &self.outcome,
            &self.sqlstate,
            &self.message,
            &self.delay_ms,
            &self.node,
            &self.pid,
            &self.revoked,
            snapshot,
            &self.ran_us,
        ]
    }
}
