//! Reading jobs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::{QueryError, id_text, status};
use crate::model::{JobId, JobStatus, TaskStatus};

/// A job as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Its id.
    #[serde(serialize_with = "id_text")]
    pub job_id: JobId,
    /// Its state.
    pub state: JobStatus,
    /// Held back by `job pause`.
    pub paused: bool,
    /// What the submitter called its kind.
    pub job_type: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// The role whose rights its tasks have unless they name another.
    pub owner: String,
    /// Who submitted it.
    pub submitted_by: String,
    /// Higher first.
    pub priority: i32,
    /// Its idempotency key.
    pub key: Option<String>,
    /// Tasks in all, as far as they are admitted.
    pub tasks: i64,
    /// Tasks that are done.
    pub tasks_done: i64,
    /// Tasks that ended as error, unscheduled or cancelled.
    pub tasks_failed: i64,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When its first attempt started.
    pub started_at: Option<Timestamp>,
    /// When it reached a terminal state.
    pub finished_at: Option<Timestamp>,
    /// The server's clock at the look, for ages.
    #[serde(skip)]
    pub now: Timestamp,
}

impl Job {
    /// The rest at the speed so far; none before anything ended, when all has, and while it is paused.
    pub fn eta(&self) -> Option<SignedDuration> {
        let ended = self.tasks_done + self.tasks_failed;
        let left = self.tasks - ended;
        if ended <= 0 || left <= 0 || self.paused || self.state.is_terminal() {
            return None;
        }
        let elapsed = self.now.duration_since(self.started_at?);
        SignedDuration::try_from_secs_f64(elapsed.as_secs_f64() * left as f64 / ended as f64).ok()
    }
}

/// Which jobs to list. The default is every job that the caller may see, newest first.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only these states; empty: all.
    pub states: Vec<JobStatus>,
    /// Only jobs with this text in their description, type, key or owner, or with this id; case does not matter.
    pub search: Option<String>,
    /// Only jobs older than this one: the next page.
    pub after: Option<JobId>,
    /// At most so many.
    pub limit: Option<i64>,
}

/// `job list`, newest first, walking the primary key backwards.
const LIST: &str = "
    SELECT j.job_id, j.state::text, j.paused, j.job_type, j.description, j.owner::text, j.submitted_by::text,
           j.priority, j.key, j.tasks, j.tasks_done, j.tasks_failed, j.submitted_at, j.started_at, j.finished_at,
           pg_catalog.clock_timestamp()
      FROM yardmaster.job j
     WHERE ($1::text[] IS NULL OR j.state::text = ANY ($1)) AND ($2::bigint IS NULL OR j.job_id < $2)
       AND ($4::text IS NULL OR pg_catalog.strpos(pg_catalog.lower(
               pg_catalog.concat_ws(E'\\n', j.job_id, j.description, j.job_type, j.key, j.owner)), pg_catalog.lower($4)) > 0)
     ORDER BY j.job_id DESC LIMIT $3";

/// `job show`, by key.
const SHOW: &str = "
    SELECT j.job_id, j.state::text, j.paused, j.job_type, j.description, j.owner::text, j.submitted_by::text,
           j.priority, j.key, j.tasks, j.tasks_done, j.tasks_failed, j.submitted_at, j.started_at, j.finished_at,
           pg_catalog.clock_timestamp()
      FROM yardmaster.job j WHERE j.job_id = $1";

/// `job wait`, by key, many times a second.
const STATES: &str = "SELECT j.job_id, j.state::text FROM yardmaster.job j WHERE j.job_id = ANY ($1)";

/// Once a job has bad endings: how many of each kind, over the index (job_id, task_id).
const BAD_ENDINGS: &str = "
    SELECT t.status::text, count(*) FROM yardmaster.task t
     WHERE t.job_id = $1 AND t.status::text IN ('error', 'unscheduled', 'cancelled') GROUP BY t.status";

/// How many tasks of a job ended in each way that is not done.
///
/// # Errors
/// See [`QueryError`].
pub async fn bad_endings(client: &Client, job: &Job) -> Result<BTreeMap<TaskStatus, i64>, QueryError> {
    if job.tasks_failed == 0 {
        return Ok(BTreeMap::new());
    }
    let rows = client.query_typed(BAD_ENDINGS, &[(&job.job_id.0, Type::INT8)]).await?;
    rows.iter().map(|row| Ok((status(row.try_get(0)?)?, row.try_get(1)?))).collect()
}

/// Lists jobs, newest first.
///
/// # Errors
/// See [`QueryError`].
pub async fn list(client: &Client, filter: &JobFilter) -> Result<Vec<Job>, QueryError> {
    let labels: Option<Vec<&str>> = match filter.states.as_slice() {
        [] => None,
        states => Some(states.iter().map(|s| s.as_str()).collect()),
    };
    let after = filter.after.map(|id| id.0);
    let rows = client
        .query_typed(
            LIST,
            &[
                (&labels, Type::TEXT_ARRAY),
                (&after, Type::INT8),
                (&filter.limit, Type::INT8),
                (&filter.search, Type::TEXT),
            ],
        )
        .await?;
    rows.iter().map(read).collect()
}

/// One job, or nothing if there is none that the caller may see.
///
/// # Errors
/// See [`QueryError`].
pub async fn show(client: &Client, id: JobId) -> Result<Option<Job>, QueryError> {
    client.query_typed(SHOW, &[(&id.0, Type::INT8)]).await?.first().map(read).transpose()
}

/// The states of some jobs; unknown ones are left out.
///
/// # Errors
/// See [`QueryError`].
pub async fn states(client: &Client, ids: &[JobId]) -> Result<Vec<(JobId, JobStatus)>, QueryError> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let rows = client.query_typed(STATES, &[(&ids, Type::INT8_ARRAY)]).await?;
    rows.iter().map(|row| Ok((JobId(row.try_get(0)?), status(row.try_get(1)?)?))).collect()
}

fn read(row: &Row) -> Result<Job, QueryError> {
    Ok(Job {
        job_id: JobId(row.try_get(0)?),
        state: status(row.try_get(1)?)?,
        paused: row.try_get(2)?,
        job_type: row.try_get(3)?,
        description: row.try_get(4)?,
        owner: row.try_get(5)?,
        submitted_by: row.try_get(6)?,
        priority: row.try_get(7)?,
        key: row.try_get(8)?,
        tasks: row.try_get(9)?,
        tasks_done: row.try_get(10)?,
        tasks_failed: row.try_get(11)?,
        submitted_at: row.try_get(12)?,
        started_at: row.try_get(13)?,
        finished_at: row.try_get(14)?,
        now: row.try_get(15)?,
    })
}
