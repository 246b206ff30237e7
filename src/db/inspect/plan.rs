//! What `job plan` asks: would the catalog take this job, and what does the job meet there? Nothing stays: the
//! submission is made and rolled back.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::QueryError;
use crate::model::JobId;

/// What the catalog says to a submission that is then rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rehearsal {
    /// It would become a job.
    New,
    /// Its key is known, with the same content: it is this job already.
    Known(JobId),
}

/// A node as the leader published it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedNode {
    /// Its limit of running tasks.
    pub max_task_executors: i32,
    /// Its limit of tasks that have not ended, if any.
    pub max_tracked_tasks: Option<i32>,
    /// `active`, `draining` or `down`.
    pub state: String,
    /// Why it is not active.
    pub reason: Option<String>,
}

/// A role that a job names as owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedOwner {
    /// Its name.
    pub name: String,
    /// May it log in?
    pub can_login: bool,
}

/// What a job meets in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// Nodes by name.
    pub nodes: BTreeMap<String, PlannedNode>,
    /// Published settings by key.
    pub settings: BTreeMap<String, String>,
    /// Those of the asked owners that exist.
    pub owners: Vec<PlannedOwner>,
}

const SUBMIT: &str = "SELECT yardmaster.job_submit($1)";
const IS_NEW: &str = "SELECT yardmaster.is_of_this_transaction('job', $1)";
const NODES: &str = "
    SELECT n.name, n.max_task_executors, n.max_tracked_tasks, n.state::text, n.reason FROM yardmaster.node n";
const SETTINGS: &str = "SELECT p.key, p.value FROM yardmaster.published p";
const OWNERS: &str = "
    SELECT r.rolname::text, r.rolcanlogin FROM pg_catalog.pg_roles r
     WHERE r.rolname = ANY ($1::text[]) OR r.rolname = current_user AND pg_catalog.cardinality($1::text[]) = 0";

/// Submits a job and takes it back: every check of the catalog runs, nothing is stored, nobody is woken.
///
/// # Errors
/// [`QueryError::Refused`] and [`QueryError::Denied`] are the catalog's verdict.
pub async fn rehearse(client: &mut Client, job: &Value) -> Result<Rehearsal, QueryError> {
    let transaction = client.transaction().await?;
    let unexpected = || QueryError::Unexpected("job_submit returned no row".to_owned());
    let rows = transaction.query_typed(SUBMIT, &[(job, Type::JSONB)]).await?;
    let id: i64 = rows.first().ok_or_else(unexpected)?.try_get(0)?;
    let rows = transaction.query_typed(IS_NEW, &[(&id, Type::INT8)]).await?;
    let is_new: bool = rows.first().ok_or_else(unexpected)?.try_get(0)?;
    transaction.rollback().await?;
    Ok(if is_new { Rehearsal::New } else { Rehearsal::Known(JobId(id)) })
}

/// Reads nodes, published settings, and those of the owners that exist (none named: the caller).
///
/// # Errors
/// See [`QueryError`].
pub async fn surroundings(client: &Client, owners: &[String]) -> Result<Surroundings, QueryError> {
    let mut nodes = BTreeMap::new();
    for row in client.query_typed(NODES, &[]).await? {
        let node = PlannedNode {
            max_task_executors: row.try_get(1)?,
            max_tracked_tasks: row.try_get(2)?,
            state: row.try_get(3)?,
            reason: row.try_get(4)?,
        };
        nodes.insert(row.try_get(0)?, node);
    }
    let mut settings = BTreeMap::new();
    for row in client.query_typed(SETTINGS, &[]).await? {
        settings.insert(row.try_get(0)?, row.try_get(1)?);
    }
    let rows = client.query_typed(OWNERS, &[(&owners, Type::TEXT_ARRAY)]).await?;
    let owners = rows
        .iter()
        .map(|row| Ok(PlannedOwner { name: row.try_get(0)?, can_login: row.try_get(1)? }))
        .collect::<Result<_, QueryError>>()?;
    Ok(Surroundings { nodes, settings, owners })
}
