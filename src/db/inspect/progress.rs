//! Following jobs while they run: counters by key at every look, and the tasks that run or have just ended.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::jobs::{self, Job};
use super::{QueryError, status};
use crate::model::{JobId, TaskId, TaskStatus};

/// Endings are written with the time at which their transaction began, so one look asks again for those of the
/// last seconds: no settlement takes longer (the leader's statement_timeout is a few seconds).
pub const OVERLAP: SignedDuration = SignedDuration::from_secs(10);

/// One look at one job.
#[derive(Debug, Clone)]
pub struct JobProgress {
    /// The job with its counters.
    pub job: Job,
    /// What runs, longest first.
    pub running: Vec<TaskGlance>,
    /// What ended, or failed and will be tried again, since the last look.
    pub news: Vec<TaskGlance>,
}

/// As much of a task as a line of progress needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskGlance {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: Option<String>,
    /// Its status: terminal, running, cancelling, or runnable after a failed attempt.
    pub status: TaskStatus,
    /// The newest attempt.
    pub attempt: i32,
    /// Where it runs; none: home.
    pub node: Option<String>,
    /// When the newest attempt started.
    pub started_at: Option<Timestamp>,
    /// When the task ended.
    pub finished_at: Option<Timestamp>,
    /// What PostgreSQL said, for a task that did not end well.
    pub message: Option<String>,
}

/// One pass over the job's tasks by the index (job_id, task_id); only what runs or is new is sent. The message is
/// fetched by key for the few that need it, so that the pass itself does not touch the attempts.
const RUNNING_AND_NEW: &str = "
    SELECT t.task_id, t.name, t.status::text, t.attempt, t.node, t.started_at, t.finished_at,
           CASE WHEN t.status::text NOT IN ('done', 'running', 'cancelling')
                THEN (SELECT m.message FROM yardmaster.task m WHERE m.task_id = t.task_id) END
      FROM yardmaster.task t
     WHERE t.job_id = $1
       AND (t.status::text IN ('running', 'cancelling')
            OR t.finished_at >= $2
            OR (t.status::text = 'runnable' AND t.retry_count > 0))
     ORDER BY t.started_at NULLS LAST, t.task_id";

/// Remembers what was told already, so that each ending is news once.
#[derive(Debug)]
pub struct Follower {
    job: JobId,
    since: Timestamp,
    told: HashSet<(TaskId, i32, TaskStatus)>,
}

impl Follower {
    /// Follows a job from now on; with `from_start` also what ended before.
    pub fn new(job: JobId, from_start: bool) -> Self {
        let since = if from_start { Timestamp::UNIX_EPOCH } else { Timestamp::MAX };
        Self { job, since, told: HashSet::new() }
    }

    /// Looks once; nothing if there is no such job.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub async fn look(&mut self, client: &Client) -> Result<Option<JobProgress>, QueryError> {
        let Some(job) = jobs::show(client, self.job).await? else { return Ok(None) };
        // A follower that starts in the middle takes its first look as the beginning.
        let first = self.since == Timestamp::MAX;
        if first {
            self.since = job.now;
        }
        let rows = client
            .query_typed(RUNNING_AND_NEW, &[(&self.job.0, Type::INT8), (&self.since, Type::TIMESTAMPTZ)])
            .await?;
        let mut running = Vec::new();
        let mut news = Vec::new();
        let mut told = HashSet::new();
        for row in &rows {
            let glance = TaskGlance {
                task: TaskId(row.try_get(0)?),
                name: row.try_get(1)?,
                status: status(row.try_get(2)?)?,
                attempt: row.try_get(3)?,
                node: row.try_get(4)?,
                started_at: row.try_get(5)?,
                finished_at: row.try_get(6)?,
                message: row.try_get(7)?,
            };
            if matches!(glance.status, TaskStatus::Running | TaskStatus::Cancelling) {
                running.push(glance);
                continue;
            }
            let mark = (glance.task, glance.attempt, glance.status);
            let is_new = !self.told.contains(&mark);
            told.insert(mark);
            if is_new && !first {
                news.push(glance);
            }
        }
        // What the next look cannot see again need not be remembered: memory is bounded by the overlap.
        self.told = told;
        self.since = self.since.max(job.now.saturating_sub(OVERLAP).unwrap_or(self.since));
        Ok(Some(JobProgress { job, running, news }))
    }
}
