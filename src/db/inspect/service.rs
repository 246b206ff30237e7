//! The service as the catalog shows it: who leads, how much there is to do, what runs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::{QueryError, id_text, status};
use crate::model::{JobId, JobStatus, TaskId, TaskStatus};

/// A leader whose renewal is older than this may be replaced, so it does not count as alive (SPEC section 7).
pub const SILENCE: SignedDuration = SignedDuration::from_secs(15);

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leader {
    /// The name of the instance; empty if there has never been one.
    pub instance: String,
    /// Its term.
    pub epoch: i64,
    /// Since when.
    pub since: Timestamp,
    /// Its last sign of life.
    pub renewed_at: Timestamp,
    /// Is that recent enough, by the server's clock?
    pub alive: bool,
    /// The age of the last sign of life.
    #[serde(skip)]
    pub silent_for: SignedDuration,
}

impl Leader {
    /// Has a service ever led this catalog?
    pub fn ever(&self) -> bool {
        self.epoch > 0
    }
}

/// A task that runs now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunningTask {
    /// The task.
    #[serde(serialize_with = "id_text")]
    pub task_id: TaskId,
    /// Its job.
    #[serde(serialize_with = "id_text")]
    pub job_id: JobId,
    /// Its name.
    pub name: Option<String>,
    /// Running or cancelling.
    pub status: TaskStatus,
    /// Where; none: home.
    pub node: Option<String>,
    /// As whom.
    pub owner: String,
    /// The attempt.
    pub attempt: i32,
    /// The backend.
    pub pid: Option<i32>,
    /// Since when.
    pub started_at: Option<Timestamp>,
    /// For how long, in seconds.
    pub seconds: Option<f64>,
}

/// The runnable task that waits longest: the one with the smallest id that is due.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OldestRunnable {
    /// The task.
    #[serde(serialize_with = "id_text")]
    pub task_id: TaskId,
    /// Its job.
    #[serde(serialize_with = "id_text")]
    pub job_id: JobId,
    /// Seconds since its job was submitted: an upper bound of its wait.
    pub seconds: f64,
}

/// Everything that `status` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overview {
    /// Who leads.
    pub leader: Leader,
    /// All retained jobs.
    pub jobs: BTreeMap<JobStatus, i64>,
    /// The tasks of the jobs that have not ended.
    pub tasks: BTreeMap<TaskStatus, i64>,
    /// What runs, longest first; at most [`MAX_RUNNING`].
    pub running: Vec<RunningTask>,
    /// The longest wait.
    pub oldest_runnable: Option<OldestRunnable>,
}

/// So many running tasks are listed; limits allow at most 1,000.
pub const MAX_RUNNING: i64 = 1000;

/// Before each request and by `status`: two rows by key.
const LEADER: &str = "
    SELECT l.instance, l.epoch, l.since, r.renewed_at,
           extract(epoch FROM pg_catalog.clock_timestamp() - r.renewed_at)::float8
      FROM yardmaster.leader l CROSS JOIN yardmaster.leader_renewal r";

const JOBS_BY_STATE: &str = "SELECT j.state::text, count(*) FROM yardmaster.job j GROUP BY j.state";

/// `status`: the tasks of open jobs, job by job over the index (job_id, task_id). The aggregate inside LATERAL keeps
/// the planner from reading the tasks of the whole history.
const TASKS_OF_OPEN_JOBS: &str = "
    SELECT c.status, sum(c.n)::bigint
      FROM yardmaster.job j
     CROSS JOIN LATERAL (SELECT t.status::text AS status, count(*) AS n FROM yardmaster.task t
                          WHERE t.job_id = j.job_id GROUP BY 1) c
     WHERE j.state::text NOT IN ('finished', 'cancelled', 'failed')
     GROUP BY c.status";

/// `status`: as above; OFFSET 0 for the same reason.
const RUNNING: &str = "
    SELECT t.task_id, t.job_id, t.name, t.status::text, t.node, t.owner::text, t.attempt, t.pid, t.started_at,
           extract(epoch FROM pg_catalog.clock_timestamp() - t.started_at)::float8
      FROM yardmaster.job j
     CROSS JOIN LATERAL (SELECT * FROM yardmaster.task t
                          WHERE t.job_id = j.job_id AND t.status::text IN ('running', 'cancelling') OFFSET 0) t
     WHERE j.state::text NOT IN ('scheduled', 'finished', 'cancelled', 'failed')
     ORDER BY t.started_at, t.task_id LIMIT $1";

/// `status`: as above.
const OLDEST_RUNNABLE: &str = "
    SELECT c.task_id, j.job_id, extract(epoch FROM pg_catalog.clock_timestamp() - j.submitted_at)::float8
      FROM yardmaster.job j
     CROSS JOIN LATERAL (SELECT min(t.task_id) AS task_id FROM yardmaster.task t
                          WHERE t.job_id = j.job_id AND t.status = 'runnable'
                            AND (t.not_before IS NULL OR t.not_before <= pg_catalog.now())) c
     WHERE j.state::text NOT IN ('finished', 'cancelled', 'failed') AND NOT j.paused AND c.task_id IS NOT NULL
     ORDER BY c.task_id LIMIT 1";

/// Who leads this catalog.
///
/// # Errors
/// See [`QueryError`].
pub async fn leader(client: &Client) -> Result<Leader, QueryError> {
    let rows = client.query_typed(LEADER, &[]).await?;
    let row = rows.first().ok_or_else(|| QueryError::Unexpected("the leader's row is missing".to_owned()))?;
    let epoch: i64 = row.try_get(1)?;
    let silent_for = SignedDuration::try_from_secs_f64(row.try_get(4)?).unwrap_or(SignedDuration::MAX);
    Ok(Leader {
        instance: row.try_get(0)?,
        epoch,
        since: row.try_get(2)?,
        renewed_at: row.try_get(3)?,
        alive: epoch > 0 && silent_for <= SILENCE,
        silent_for,
    })
}

/// Everything that `status` shows.
///
/// # Errors
/// See [`QueryError`].
pub async fn overview(client: &Client) -> Result<Overview, QueryError> {
    let leader = leader(client).await?;
    let mut jobs: BTreeMap<JobStatus, i64> = BTreeMap::new();
    for row in client.query_typed(JOBS_BY_STATE, &[]).await? {
        jobs.insert(status(row.try_get(0)?)?, row.try_get(1)?);
    }
    let mut tasks: BTreeMap<TaskStatus, i64> = BTreeMap::new();
    for row in client.query_typed(TASKS_OF_OPEN_JOBS, &[]).await? {
        tasks.insert(status(row.try_get(0)?)?, row.try_get(1)?);
    }
    let running = client.query_typed(RUNNING, &[(&MAX_RUNNING, Type::INT8)]).await?;
    let running = running
        .iter()
        .map(|row| {
            Ok(RunningTask {
                task_id: TaskId(row.try_get(0)?),
                job_id: JobId(row.try_get(1)?),
                name: row.try_get(2)?,
                status: status(row.try_get(3)?)?,
                node: row.try_get(4)?,
                owner: row.try_get(5)?,
                attempt: row.try_get(6)?,
                pid: row.try_get(7)?,
                started_at: row.try_get(8)?,
                seconds: row.try_get(9)?,
            })
        })
        .collect::<Result<_, QueryError>>()?;
    let oldest = client.query_typed(OLDEST_RUNNABLE, &[]).await?;
    let oldest_runnable = oldest
        .first()
        .map(|row| {
            Ok::<_, QueryError>(OldestRunnable {
                task_id: TaskId(row.try_get(0)?),
                job_id: JobId(row.try_get(1)?),
                seconds: row.try_get(2)?,
            })
        })
        .transpose()?;
    Ok(Overview { leader, jobs, tasks, running, oldest_runnable })
}
