//! What is new since the last look.
//!
//! A look remembers its snapshot: `xmin:xmax:xip…`. Everything that was committed then and is visible now came with a
//! transaction that either was in progress then (`xip`) or had not begun (`>= xmax`). Both are short index scans on
//! `submit_xid`, whatever the history and however old the oldest snapshot. On taking office nothing is known, and the
//! first look is a full one.
//!
//! A window is written as a range with both ends, `[$1, the snapshot's xmax)`, although the upper end excludes nothing:
//! of one inequality a planner that does not know the values expects a third of the table, of a range half a percent.
//! And what is asked for its existence only is materialised first, since for a first row a planner gladly walks another
//! index, which is read to its end when there is none. `tests/postgres` counts the pages.

use std::time::Duration;

use tokio_postgres::Row;

use super::admit::CHUNK;
use crate::model::{JobId, TaskId};

/// Up to where the catalog has been looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The snapshot as PostgreSQL writes it; what is visible in it has been admitted.
    pub snapshot: String,
    /// Its `xmax`: transactions from here on had not begun.
    pub xmax: String,
    /// Its `xip`: transactions in progress then.
    pub xip: Vec<String>,
}

impl Mark {
    /// Before everything: a look from here is a full one.
    pub fn nothing() -> Mark {
        Mark { snapshot: "1:1:".to_owned(), xmax: "0".to_owned(), xip: Vec::new() }
    }

    /// Takes apart what `pg_current_snapshot()` printed.
    pub fn parse(snapshot: &str) -> Mark {
        let mut parts = snapshot.split(':').skip(1);
        let xmax = parts.next().unwrap_or("0").to_owned();
        let xip =
            parts.next().unwrap_or("").split(',').filter(|x| !x.is_empty()).map(str::to_owned).collect();
        Mark { snapshot: snapshot.to_owned(), xmax, xip }
    }
}

/// The kinds of requests, as the database labels them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// Cancel a job.
    JobCancel,
    /// Cancel a task.
    TaskCancel,
    /// Run a job's badly ended tasks again.
    JobRetry,
    /// Run a badly ended task again.
    TaskRetry,
    /// Start no more tasks of a job.
    JobPause,
    /// Go on with a paused job.
    JobResume,
    /// Remove a job that has ended.
    JobDelete,
    /// Remove what a job that has ended left behind.
    JobCleanup,
    /// Start nothing more on a node.
    NodeDrain,
    /// Start tasks on a node again.
    NodeResume,
}

impl RequestKind {
    fn parse(label: &str) -> Option<RequestKind> {
        Some(match label {
            "job_cancel" => RequestKind::JobCancel,
            "task_cancel" => RequestKind::TaskCancel,
            "job_retry" => RequestKind::JobRetry,
            "task_retry" => RequestKind::TaskRetry,
            "job_pause" => RequestKind::JobPause,
            "job_resume" => RequestKind::JobResume,
            "job_delete" => RequestKind::JobDelete,
            "job_cleanup" => RequestKind::JobCleanup,
            "node_drain" => RequestKind::NodeDrain,
            "node_resume" => RequestKind::NodeResume,
            _ => return None,
        })
    }
}

/// A request row that nobody has carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its id.
    pub id: i64,
    /// What is asked.
    pub kind: RequestKind,
    /// The job; 0 for requests about nodes.
    pub job: JobId,
    /// The task, for requests about one.
    pub task: Option<TaskId>,
    /// A changed command, for `task_retry`; the node, for those about one.
    pub argument: Option<String>,
}

/// What a look found.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The look's own snapshot: the turn admits what is visible in it.
    pub mark: Mark,
    /// Are there new jobs?
    pub jobs: bool,
    /// Are there new tasks?
    pub tasks: bool,
    /// May there be more of them than one turn admits?
    pub many_tasks: bool,
    /// Are there new edges onto tasks that were admitted before?
    pub late_edges: bool,
    /// Jobs with a new edge that also have one, new or old, onto a later task: every cycle has such an edge.
    pub suspicious: Vec<i64>,
    /// Has a node a limit of tracked tasks?
    pub tracked: bool,
    /// Are there requests? They are read apart.
    pub asked: bool,
    /// Is a delayed task due, or a job past its deadline?
    pub due: bool,
    /// How long until the next delayed task is due, if nothing is now.
    pub next_due: Option<Duration>,
    /// Requests to carry out, oldest first.
    pub requests: Vec<Request>,
}

impl Found {
    /// Is there anything for a turn to do?
    pub fn is_empty(&self) -> bool {
        !(self.jobs || self.tasks || self.late_edges || self.asked)
    }
}

/// Called once per look, and all that an idle service says in a poll. `$1` is the last look's xmax, `$2` its xip. Locks
/// nothing; wants the `submit_xid` indexes, `task_depend_upward`, `task_state_delayed` and `job_state_deadline`.
pub const LOOK: &str = "
WITH edge AS MATERIALIZED (
    SELECT e.job_id, e.task_id FROM yardmaster.new_edges($1::text::xid8, $2::text[]::xid8[], pg_current_snapshot()) e
     WHERE e.refused IS NULL
)
SELECT pg_current_snapshot()::text,
       EXISTS (SELECT FROM yardmaster.new_jobs($1::text::xid8, $2::text[]::xid8[], pg_current_snapshot())),
       (SELECT count(*) FROM (
               SELECT FROM yardmaster.new_tasks($1::text::xid8, $2::text[]::xid8[], pg_current_snapshot(), 0) LIMIT 10001) n),
       EXISTS (SELECT FROM edge e JOIN yardmaster.task_state s ON s.task_id = e.task_id),
       ARRAY(SELECT n.job_id FROM (SELECT DISTINCT e.job_id FROM edge e) n
              WHERE EXISTS (SELECT FROM yardmaster.task_depend u
                             WHERE u.job_id = n.job_id AND u.depends_on > u.task_id AND u.refused IS NULL)),
       EXISTS (SELECT FROM yardmaster.node_state n WHERE n.declared AND n.max_tracked_tasks IS NOT NULL),
       EXISTS (SELECT FROM yardmaster.new_requests($1::text::xid8, $2::text[]::xid8[], pg_current_snapshot()) r WHERE r.handled_at IS NULL),
       (SELECT ceil(extract(epoch FROM d.not_before - clock_timestamp()) * 1000)::bigint
          FROM (SELECT s.not_before FROM yardmaster.task_state s
                 WHERE s.status = 'runnable' AND NOT s.ready AND s.not_before IS NOT NULL AND s.not_before < 'infinity'
                 ORDER BY s.not_before LIMIT 1) d),
       EXISTS (SELECT FROM yardmaster.job_state j WHERE j.deadline <= clock_timestamp())";

/// Called after a [`LOOK`] that saw requests, with its snapshot. Wants `request_submit_xid`.
pub const REQUESTS: &str = "
SELECT r.request_id, r.kind::text, r.job_id, r.task_id, r.argument
  FROM yardmaster.new_requests($1::text::xid8, $2::text[]::xid8[], $3::text::pg_snapshot) r
 WHERE r.handled_at IS NULL ORDER BY r.request_id";

/// Called between two chunks of a large admission, which requests need not wait for: those of jobs that are admitted, as
/// far as they are. The parameters are those of the look.
pub const REQUESTS_MEANWHILE: &str = "
SELECT r.request_id, r.kind::text, r.job_id, r.task_id, r.argument
  FROM yardmaster.new_requests($1::text::xid8, $2::text[]::xid8[], pg_current_snapshot()) r
 WHERE r.handled_at IS NULL
   AND (r.job_id IS NULL OR (SELECT j.job_id FROM yardmaster.job_state j WHERE j.job_id = r.job_id) IS NOT NULL)
 ORDER BY r.request_id";

/// The visible edges of jobs in which a cycle is possible. Wants `task_depend_job`.
pub const EDGES: &str = "
SELECT e.task_id, e.depends_on FROM yardmaster.task_depend e
 WHERE e.job_id = ANY ($1) AND e.refused IS NULL AND pg_visible_in_snapshot(e.submit_xid, $2::text::pg_snapshot)
 ORDER BY e.task_id, e.depends_on";

/// Maps the row of [`LOOK`].
pub fn found(look: &Row) -> Found {
    let snapshot: String = look.get(0);
    let next_due: Option<i64> = look.get(7);
    Found {
        mark: Mark::parse(&snapshot),
        jobs: look.get(1),
        tasks: look.get::<_, i64>(2) > 0,
        many_tasks: look.get::<_, i64>(2) > CHUNK,
        late_edges: look.get(3),
        suspicious: look.get(4),
        tracked: look.get(5),
        asked: look.get(6),
        due: next_due.is_some_and(|ms| ms <= 0) || look.get(8),
        next_due: next_due.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
        requests: Vec::new(),
    }
}

/// Maps the rows of [`REQUESTS`] and [`REQUESTS_MEANWHILE`].
pub fn requests(rows: &[Row]) -> Vec<Request> {
    let request = |row: &Row| {
        Some(Request {
            id: row.get(0),
            kind: RequestKind::parse(row.get(1))?,
            job: JobId(row.get::<_, Option<i64>>(2).unwrap_or(0)),
            task: row.get::<_, Option<i64>>(3).map(TaskId),
            argument: row.get(4),
        })
    };
    rows.iter().filter_map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_taken_apart() {
        let mark = Mark::parse("10:25:10,12,20");
        assert_eq!(
            (mark.xmax.as_str(), mark.xip.as_slice()),
            ("25", &["10".to_owned(), "12".into(), "20".into()][..])
        );
        assert_eq!(Mark::parse("10:10:").xip, Vec::<String>::new());
    }
}
