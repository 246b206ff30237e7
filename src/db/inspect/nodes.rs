//! The declared nodes as the catalog shows them, and draining them.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::QueryError;
use super::steer::{self, Request};

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Active, draining or down.
    pub state: String,
    /// Why it is not active.
    pub reason: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Running tasks that take one of its slots.
    pub slots_used: i64,
    /// How many may.
    pub max_task_executors: i32,
    /// How many tasks that have not ended may target it.
    pub max_tracked_tasks: Option<i32>,
    /// How many do.
    pub tasks_tracked: i64,
}

const LIST: &str = "
    SELECT n.name, n.state, n.reason, n.since, n.slots_used, n.max_task_executors, n.max_tracked_tasks,
           n.tasks_tracked
      FROM yardmaster.node n ORDER BY n.name";
const DRAIN: &str = "SELECT yardmaster.node_drain($1)";
const RESUME: &str = "SELECT yardmaster.node_resume($1)";

/// All of them, by name.
///
/// # Errors
/// See [`QueryError`].
pub async fn list(client: &Client) -> Result<Vec<Node>, QueryError> {
    let rows = client.query_typed(LIST, &[]).await?;
    let node = |row: &tokio_postgres::Row| {
        Ok(Node {
            name: row.try_get(0)?,
            state: row.try_get(1)?,
            reason: row.try_get(2)?,
            since: row.try_get(3)?,
            slots_used: row.try_get(4)?,
            max_task_executors: row.try_get(5)?,
            max_tracked_tasks: row.try_get(6)?,
            tasks_tracked: row.try_get(7)?,
        })
    };
    rows.iter().map(node).collect()
}

/// Asks for a node to be drained, or to be used again.
///
/// # Errors
/// [`QueryError::Refused`] for an unknown name, [`QueryError::Denied`] without the right.
pub async fn drain(client: &Client, name: &str, drain: bool) -> Result<Request, QueryError> {
    let sql = if drain { DRAIN } else { RESUME };
    steer::one(client.query_typed(sql, &[(&name, Type::TEXT)]).await?)
}
