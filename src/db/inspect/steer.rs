//! Submitting and steering: calls of the catalog's functions, and what came of the requests.

use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::{QueryError, id_text};
use crate::model::{JobId, TaskId, TaskStatus};

/// A request that was recorded, and what the leader said to it so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Its id.
    #[serde(serialize_with = "id_text")]
    pub request_id: i64,
    /// What came of it, in the leader's words; none: not carried out yet.
    pub outcome: Option<String>,
}

/// What can be asked of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRequest {
    /// End it: nothing new starts, what runs is cancelled.
    Cancel,
    /// Run its failed, cancelled and unscheduled tasks again.
    Retry,
    /// Start nothing more of it.
    Pause,
    /// Start its tasks again.
    Resume,
    /// Remove it, if it has ended.
    Delete,
    /// Remove what it left behind, if it has ended.
    Cleanup,
}

const SUBMIT: &str = "SELECT yardmaster.job_submit($1)";
/// After it: a key that was used before gives the job of then, which did not come with this transaction.
const IS_NEW: &str = "SELECT yardmaster.is_of_this_transaction('job', $1)";
const CANCEL_JOB: &str = "SELECT yardmaster.job_cancel($1)";
const RETRY_JOB: &str = "SELECT yardmaster.job_retry($1)";
const PAUSE_JOB: &str = "SELECT yardmaster.job_pause($1)";
const RESUME_JOB: &str = "SELECT yardmaster.job_resume($1)";
const DELETE_JOB: &str = "SELECT yardmaster.job_delete($1)";
const CLEANUP_JOB: &str = "SELECT yardmaster.job_cleanup($1)";
const CANCEL_TASK: &str = "SELECT yardmaster.task_cancel($1)";
const RETRY_TASK: &str = "SELECT yardmaster.task_retry($1, $2)";

/// `task retry --job`: every ended task of the job that fits, in one statement, hence one transaction.
const RETRY_TASKS_OF_JOB: &str = "
    SELECT yardmaster.task_retry(t.task_id, NULL)
      FROM yardmaster.task t
     WHERE t.job_id = $1 AND t.status::text = ANY ($2) AND ($3::text IS NULL OR t.sqlstate LIKE $3 || '%')
     ORDER BY t.task_id";

/// By primary key.
const OUTCOME: &str =
    "SELECT r.outcome, r.handled_at IS NOT NULL FROM yardmaster.request r WHERE r.request_id = $1";

/// A job as its submission left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Its id.
    pub job: JobId,
    /// Made now; false if its key was known already, with the same content.
    pub is_new: bool,
}

/// Submits jobs in the form of job files, all in one transaction; the answers come in the same order.
///
/// # Errors
/// [`QueryError::Refused`] for what the catalog does not take; then none of them was stored.
pub async fn submit(client: &mut Client, jobs: &[Value]) -> Result<Vec<Submitted>, QueryError> {
    let transaction = client.transaction().await?;
    let mut submitted = Vec::with_capacity(jobs.len());
    for job in jobs {
        let rows = transaction.query_typed(SUBMIT, &[(job, Type::JSONB)]).await?;
        let row =
            rows.first().ok_or_else(|| QueryError::Unexpected("job_submit returned no row".to_owned()))?;
        let id: i64 = row.try_get(0)?;
        let rows = transaction.query_typed(IS_NEW, &[(&id, Type::INT8)]).await?;
        let is_new = rows.first().is_some_and(|row| row.get(0));
        submitted.push(Submitted { job: JobId(id), is_new });
    }
    transaction.commit().await?;
    Ok(submitted)
}

/// Records a request concerning a job.
///
/// # Errors
/// [`QueryError::Refused`] for an unknown id.
pub async fn job(client: &Client, what: JobRequest, id: JobId) -> Result<Request, QueryError> {
    let sql = match what {
        JobRequest::Cancel => CANCEL_JOB,
        JobRequest::Retry => RETRY_JOB,
        JobRequest::Pause => PAUSE_JOB,
        JobRequest::Resume => RESUME_JOB,
        JobRequest::Delete => DELETE_JOB,
        JobRequest::Cleanup => CLEANUP_JOB,
    };
    one(client.query_typed(sql, &[(&id.0, Type::INT8)]).await?)
}

/// Asks for a task to be cancelled.
///
/// # Errors
/// [`QueryError::Refused`] for an unknown id.
pub async fn cancel_task(client: &Client, id: TaskId) -> Result<Request, QueryError> {
    one(client.query_typed(CANCEL_TASK, &[(&id.0, Type::INT8)]).await?)
}

/// Asks for a task to be run again, with another command if one is given.
///
/// # Errors
/// [`QueryError::Refused`] for an unknown id or an empty command, [`QueryError::Denied`] without the owner's rights.
pub async fn retry_task(client: &Client, id: TaskId, command: Option<&str>) -> Result<Request, QueryError> {
    one(client.query_typed(RETRY_TASK, &[(&id.0, Type::INT8), (&command, Type::TEXT)]).await?)
}

/// Asks for the tasks of a job with one of the statuses, and an SQLSTATE that begins so, to be run again.
///
/// # Errors
/// See [`QueryError`].
pub async fn retry_tasks_of_job(
    client: &Client,
    job: JobId,
    statuses: &[TaskStatus],
    sqlstate: Option<&str>,
) -> Result<Vec<Request>, QueryError> {
    let labels: Vec<&str> = statuses.iter().map(|s| s.as_str()).collect();
    let rows = client
        .query_typed(
            RETRY_TASKS_OF_JOB,
            &[(&job.0, Type::INT8), (&labels, Type::TEXT_ARRAY), (&sqlstate, Type::TEXT)],
        )
        .await?;
    rows.iter().map(|row| Ok(Request { request_id: row.try_get(0)?, outcome: None })).collect()
}

/// What the leader wrote on a request; none while it is not carried out.
///
/// # Errors
/// See [`QueryError`].
pub async fn outcome(client: &Client, request: i64) -> Result<Option<String>, QueryError> {
    let rows = client.query_typed(OUTCOME, &[(&request, Type::INT8)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let text: Option<String> = row.try_get(0)?;
    let handled: bool = row.try_get(1)?;
    Ok(handled.then(|| text.unwrap_or_default()))
}

pub(super) fn one(rows: Vec<tokio_postgres::Row>) -> Result<Request, QueryError> {
    let row = rows
        .first()
        .ok_or_else(|| QueryError::Unexpected("a request function returned no row".to_owned()))?;
    Ok(Request { request_id: row.try_get(0)?, outcome: None })
}
