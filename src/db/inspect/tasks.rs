//! Reading tasks, their attempts and dependencies.

use futures::{Stream, TryStreamExt};
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::{QueryError, id_text, ids_text, status};
use crate::model::{JobId, TaskId, TaskStatus};

/// A task as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Its id.
    #[serde(serialize_with = "id_text")]
    pub task_id: TaskId,
    /// Its job.
    #[serde(serialize_with = "id_text")]
    pub job_id: JobId,
    /// Its name within the job.
    pub name: Option<String>,
    /// Its status.
    pub status: TaskStatus,
    /// The role it runs as.
    pub owner: String,
    /// Where it runs; none: home.
    pub node: Option<String>,
    /// Whose slots it takes besides.
    pub nodes_involved: Option<Vec<String>>,
    /// Higher first.
    pub priority: i32,
    /// The number of the newest attempt; 0: none yet.
    pub attempt: i32,
    /// Failed attempts.
    pub retry_count: i32,
    /// Attempts that were ended from outside.
    pub interruptions: i32,
    /// The backend that runs it.
    pub pid: Option<i32>,
    /// Not to be started before (ISO 8601, or `infinity`).
    pub not_before: Option<String>,
    /// When the newest attempt started.
    pub started_at: Option<Timestamp>,
    /// When it ended for good.
    pub finished_at: Option<Timestamp>,
    /// Of the last failure.
    pub sqlstate: Option<String>,
    /// What PostgreSQL said.
    pub message: Option<String>,
    /// The SQL.
    pub command: String,
    /// The server's clock at the look, for ages.
    #[serde(skip)]
    pub now: Timestamp,
}

/// A dependency of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dependency {
    /// The task that is waited for.
    #[serde(serialize_with = "id_text")]
    pub task_id: TaskId,
    /// Its name.
    pub name: Option<String>,
    /// Its status.
    pub status: TaskStatus,
    /// Why the dependency does not count, if it was refused.
    pub refused: Option<String>,
}

/// One try at running a task. A live one has no outcome yet; an ending without an attempt has the number 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// The task.
    #[serde(serialize_with = "id_text")]
    pub task_id: TaskId,
    /// The task's name.
    pub name: Option<String>,
    /// From 1.
    pub attempt: i32,
    /// Where it ran; empty: home.
    pub node: String,
    /// The backend that ran it.
    pub pid: Option<i32>,
    /// `done`, `failed`, `interrupted` or `cancelled`.
    pub outcome: Option<String>,
    /// Of its error.
    pub sqlstate: Option<String>,
    /// What PostgreSQL said.
    pub message: Option<String>,
    /// When its claim was made.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A task with everything around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskDetail {
    /// The task.
    #[serde(flatten)]
    pub task: Task,
    /// What it waits for.
    pub depends_on: Vec<Dependency>,
    /// The tasks that wait for it.
    #[serde(serialize_with = "ids_text")]
    pub dependants: Vec<TaskId>,
    /// Its history, oldest first.
    pub attempts: Vec<Attempt>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only tasks of this job, then in order of id; otherwise those of the newest job first, newest first.
    pub job: Option<JobId>,
    /// Only these statuses; empty: all.
    pub statuses: Vec<TaskStatus>,
    /// Continue after this task: the next page.
    pub after: Option<TaskId>,
    /// At most so many.
    pub limit: Option<i64>,
}

macro_rules! select_task {
    ($rest:literal) => {
        concat!(
            "SELECT t.task_id, t.job_id, t.name, t.status::text, t.owner::text, t.node, t.nodes_involved, t.priority,
                    t.attempt, t.retry_count, t.interruptions, t.pid, pg_catalog.to_json(t.not_before) #>> '{}',
                    t.started_at, t.finished_at, t.sqlstate, t.message, t.command, pg_catalog.clock_timestamp()
               FROM yardmaster.task t ",
            $rest
        )
    };
}

/// `task list --job`: the index (job_id, task_id) in order.
const LIST_OF_JOB: &str = select_task!(
    "WHERE t.job_id = $1 AND ($2::text[] IS NULL OR t.status::text = ANY ($2)) AND ($3::bigint IS NULL OR t.task_id > $3)
     ORDER BY t.task_id LIMIT $4"
);

/// `task list`: job by job, the newest first, so that the limit ends the walk (the order of an index inside a
/// security-barrier view is lost on the planner). Jobs whose counters say that they have no such task are left out.
const LIST: &str = "
    WITH last AS MATERIALIZED (SELECT a.job_id FROM yardmaster.task a WHERE a.task_id = $2)
    SELECT t.task_id, t.job_id, t.name, t.status::text, t.owner::text, t.node, t.nodes_involved, t.priority,
           t.attempt, t.retry_count, t.interruptions, t.pid, pg_catalog.to_json(t.not_before) #>> '{}',
           t.started_at, t.finished_at, t.sqlstate, t.message, t.command, pg_catalog.clock_timestamp()
      FROM (SELECT j.job_id FROM yardmaster.job j
             WHERE ($2 IS NULL OR j.job_id <= (SELECT last.job_id FROM last))
               AND ($4 AND j.tasks_done > 0 OR $5 AND j.tasks_failed > 0
                    OR $6 AND j.state::text NOT IN ('finished', 'cancelled', 'failed'))
             ORDER BY j.job_id DESC) j
     CROSS JOIN LATERAL (
           SELECT * FROM yardmaster.task t
            WHERE t.job_id = j.job_id AND ($1::text[] IS NULL OR t.status::text = ANY ($1))
              AND ($2 IS NULL OR t.task_id < $2 OR t.job_id < (SELECT last.job_id FROM last)) OFFSET 0) t
     ORDER BY j.job_id DESC, t.task_id DESC LIMIT $3";

/// `task show`, by key.
const SHOW: &str = select_task!("WHERE t.task_id = $1");

/// The closing table of `run`: bad endings first, bounded.
const WORST_FIRST: &str = select_task!(
    "WHERE t.job_id = ANY ($1)
     ORDER BY CASE t.status::text WHEN 'error' THEN 0 WHEN 'cancelled' THEN 1 WHEN 'unscheduled' THEN 2
                                  WHEN 'done' THEN 4 ELSE 3 END, t.task_id LIMIT $2"
);

/// The error that `job wait` prints: the one that came first.
const FIRST_ERROR: &str =
    select_task!("WHERE t.job_id = $1 AND t.status = 'error' ORDER BY t.finished_at, t.task_id LIMIT 1");

/// `task wait`, by key, many times a second.
const STATUS: &str = "SELECT t.status::text FROM yardmaster.task t WHERE t.task_id = $1";

/// `task show`: the edges upwards. A dependency is a task of the same job, hence visible to the same people.
const DEPENDENCIES: &str = "
    SELECT t.task_id, t.name, t.status::text, d.refused
      FROM yardmaster.task_depend d JOIN yardmaster.task t ON t.task_id = d.depends_on
     WHERE d.task_id = $1 ORDER BY t.task_id";

/// `task show`: the edges downwards, by the index on depends_on.
const DEPENDANTS: &str = "SELECT d.task_id FROM yardmaster.task_depend d WHERE d.depends_on = $1 AND d.refused IS NULL ORDER BY d.task_id";

/// `task show`: the history by primary key.
const ATTEMPTS: &str = "
    SELECT a.task_id, NULL::text, a.attempt, coalesce(a.node, ''), a.pid, a.outcome::text, a.sqlstate, a.message, a.started_at, a.ended_at
      FROM yardmaster.attempt a WHERE a.task_id = $1 ORDER BY a.attempt";

/// `job logs`: the attempts of a job that ended at a time or later, in the order of their ends, the live ones last; and
/// endings without an attempt.
const LOGS: &str = "
    SELECT a.task_id, t.name, a.attempt, coalesce(a.node, ''), a.pid, a.outcome::text, a.sqlstate, a.message, a.started_at, a.ended_at
      FROM yardmaster.attempt a JOIN yardmaster.task t ON t.task_id = a.task_id
     WHERE a.job_id = $1 AND t.job_id = $1 AND (a.ended_at IS NULL OR a.ended_at >= $2)
    UNION ALL
    SELECT t.task_id, t.name, 0, coalesce(t.node, ''), NULL, t.status::text, t.sqlstate, t.message, NULL, t.finished_at
      FROM yardmaster.task t WHERE t.job_id = $1 AND t.attempt = 0 AND t.message IS NOT NULL
       AND (t.finished_at IS NULL OR t.finished_at >= $2)
     ORDER BY 10 NULLS LAST, 1, 3";

/// Lists tasks: those of a job in order of id, otherwise by job and id, newest first.
///
/// # Errors
/// See [`QueryError`].
pub async fn list(client: &Client, filter: &TaskFilter) -> Result<Vec<Task>, QueryError> {
    let labels: Option<Vec<&str>> = match filter.statuses.as_slice() {
        [] => None,
        statuses => Some(statuses.iter().map(|s| s.as_str()).collect()),
    };
    let labels = (&labels as _, Type::TEXT_ARRAY);
    let after = filter.after.map(|id| id.0);
    let after = (&after as _, Type::INT8);
    let limit = (&filter.limit as _, Type::INT8);
    let rows = match filter.job {
        Some(job) => client.query_typed(LIST_OF_JOB, &[(&job.0, Type::INT8), labels, after, limit]).await?,
        None => {
            let wants = |some: fn(&TaskStatus) -> bool| {
                filter.statuses.is_empty() || filter.statuses.iter().any(some)
            };
            let done = wants(|status| *status == TaskStatus::Done);
            let bad = wants(|status| status.is_bad());
            let open = wants(|status| !status.is_terminal());
            let kinds = [(&done as _, Type::BOOL), (&bad as _, Type::BOOL), (&open as _, Type::BOOL)];
            let [done, bad, open] = kinds;
            client.query_typed(LIST, &[labels, after, limit, done, bad, open]).await?
        }
    };
    rows.iter().map(read).collect()
}

/// The tasks of some jobs, bad endings first, at most `limit`.
///
/// # Errors
/// See [`QueryError`].
pub async fn worst_first(client: &Client, jobs: &[JobId], limit: i64) -> Result<Vec<Task>, QueryError> {
    let jobs: Vec<i64> = jobs.iter().map(|id| id.0).collect();
    let rows = client.query_typed(WORST_FIRST, &[(&jobs, Type::INT8_ARRAY), (&limit, Type::INT8)]).await?;
    rows.iter().map(read).collect()
}

/// The task of a job whose error came first.
///
/// # Errors
/// See [`QueryError`].
pub async fn first_error(client: &Client, job: JobId) -> Result<Option<Task>, QueryError> {
    client.query_typed(FIRST_ERROR, &[(&job.0, Type::INT8)]).await?.first().map(read).transpose()
}

/// The status of a task, or nothing if there is none that the caller may see.
///
/// # Errors
/// See [`QueryError`].
pub async fn status_of(client: &Client, id: TaskId) -> Result<Option<TaskStatus>, QueryError> {
    let rows = client.query_typed(STATUS, &[(&id.0, Type::INT8)]).await?;
    rows.first().map(|row| status(row.try_get(0)?)).transpose()
}

/// A task with its dependencies, dependants and attempts.
///
/// # Errors
/// See [`QueryError`].
pub async fn show(client: &Client, id: TaskId) -> Result<Option<TaskDetail>, QueryError> {
    let key = [(&id.0 as _, Type::INT8)];
    let rows = client.query_typed(SHOW, &key).await?;
    let Some(task) = rows.first().map(read).transpose()? else { return Ok(None) };
    let depends_on = client.query_typed(DEPENDENCIES, &key).await?;
    let dependants = client.query_typed(DEPENDANTS, &key).await?;
    let attempts = client.query_typed(ATTEMPTS, &key).await?;
    Ok(Some(TaskDetail {
        task,
        depends_on: depends_on
            .iter()
            .map(|row| {
                Ok(Dependency {
                    task_id: TaskId(row.try_get(0)?),
                    name: row.try_get(1)?,
                    status: status(row.try_get(2)?)?,
                    refused: row.try_get(3)?,
                })
            })
            .collect::<Result<_, QueryError>>()?,
        dependants: dependants
            .iter()
            .map(|row| Ok(TaskId(row.try_get(0)?)))
            .collect::<Result<_, QueryError>>()?,
        attempts: attempts.iter().map(read_attempt).collect::<Result<_, QueryError>>()?,
    }))
}

/// What PostgreSQL said in the attempts of a job, streamed: a job of many tasks can have said a lot. Attempts that ended
/// before `since` are left out.
///
/// # Errors
/// See [`QueryError`].
pub async fn logs(
    client: &Client,
    job: JobId,
    since: Timestamp,
) -> Result<impl Stream<Item = Result<Attempt, QueryError>> + use<>, QueryError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&job.0, Type::INT8), (&since, Type::TIMESTAMPTZ)];
    let rows = client.query_typed_raw(LOGS, parameters).await?;
    Ok(rows.map_err(QueryError::from).and_then(|row| std::future::ready(read_attempt(&row))))
}

fn read(row: &Row) -> Result<Task, QueryError> {
    Ok(Task {
        task_id: TaskId(row.try_get(0)?),
        job_id: JobId(row.try_get(1)?),
        name: row.try_get(2)?,
        status: status(row.try_get(3)?)?,
        owner: row.try_get(4)?,
        node: row.try_get(5)?,
        nodes_involved: row.try_get(6)?,
        priority: row.try_get(7)?,
        attempt: row.try_get(8)?,
        retry_count: row.try_get(9)?,
        interruptions: row.try_get(10)?,
        pid: row.try_get(11)?,
        not_before: row.try_get(12)?,
        started_at: row.try_get(13)?,
        finished_at: row.try_get(14)?,
        sqlstate: row.try_get(15)?,
        message: row.try_get(16)?,
        command: row.try_get(17)?,
        now: row.try_get(18)?,
    })
}

fn read_attempt(row: &Row) -> Result<Attempt, QueryError> {
    Ok(Attempt {
        task_id: TaskId(row.try_get(0)?),
        name: row.try_get(1)?,
        attempt: row.try_get(2)?,
        node: row.try_get(3)?,
        pid: row.try_get(4)?,
        outcome: row.try_get(5)?,
        sqlstate: row.try_get(6)?,
        message: row.try_get(7)?,
        started_at: row.try_get(8)?,
        ended_at: row.try_get(9)?,
    })
}

/// Called by `task why`; the sentence is made where the facts are.
const WHY: &str = "SELECT yardmaster.task_why($1)";

/// Says in a sentence why a task is not running, or how it stands.
///
/// # Errors
/// [`QueryError::Refused`] for an unknown id.
pub async fn why(client: &Client, id: TaskId) -> Result<String, QueryError> {
    let rows = client.query_typed(WHY, &[(&id.0, Type::INT8)]).await?;
    let row = rows.first().ok_or_else(|| QueryError::Unexpected("task_why returned no row".to_owned()))?;
    Ok(row.try_get(0)?)
}
