//! What a drawing of a job needs: its tasks and their dependencies, and its attempts by time.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::{QueryError, id_text, status};
use crate::model::{JobId, TaskId, TaskStatus};

/// A task as a node of the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphTask {
    /// The task.
    #[serde(serialize_with = "id_text")]
    pub task_id: TaskId,
    /// Its name.
    pub name: Option<String>,
    /// Its status.
    pub status: TaskStatus,
    /// Where it runs; none: home.
    pub node: Option<String>,
}

/// A dependency that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GraphEdge {
    /// The task that waits.
    #[serde(serialize_with = "id_text")]
    pub task_id: TaskId,
    /// The task that is waited for.
    #[serde(serialize_with = "id_text")]
    pub depends_on: TaskId,
}

/// The graph of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Graph {
    /// In order of id.
    pub tasks: Vec<GraphTask>,
    /// In order of id.
    pub edges: Vec<GraphEdge>,
}

/// An attempt as a bar of the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// The task.
    #[serde(serialize_with = "id_text")]
    pub task_id: TaskId,
    /// Its name.
    pub name: Option<String>,
    /// From 1.
    pub attempt: i32,
    /// Where; empty: home.
    pub node: String,
    /// `done`, `failed`, `interrupted`, `cancelled`; none while it runs.
    pub outcome: Option<String>,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When it ended; none while it runs.
    pub ended_at: Option<Timestamp>,
}

/// The job's tasks, by the index (job_id, task_id).
const TASKS: &str = "
    SELECT t.task_id, t.name, t.status::text, t.node FROM yardmaster.task t WHERE t.job_id = $1 ORDER BY t.task_id LIMIT $2";

/// The job's edges, by the index on job_id.
const EDGES: &str = "
    SELECT d.task_id, d.depends_on FROM yardmaster.task_depend d WHERE d.job_id = $1 AND d.refused IS NULL
     ORDER BY d.task_id, d.depends_on LIMIT $2";

/// The job's attempts, the latest first.
const BARS: &str = "
    SELECT a.task_id, (SELECT t.name FROM yardmaster.task t WHERE t.task_id = a.task_id), a.attempt, a.node, a.outcome::text,
           a.started_at, a.ended_at
      FROM (SELECT * FROM yardmaster.attempt a WHERE a.job_id = $1 AND a.started_at IS NOT NULL
             ORDER BY a.started_at DESC, a.task_id DESC LIMIT $2) a
     ORDER BY a.started_at DESC, a.task_id DESC";

/// So many edges are read for each task that is.
const EDGES_A_TASK: i64 = 20;

/// The graph of a job of at most `limit` tasks; of a larger one a part, without a promise of which.
///
/// # Errors
/// See [`QueryError`].
pub async fn graph(client: &Client, job: JobId, limit: i64) -> Result<Graph, QueryError> {
    let tasks = client.query_typed(TASKS, &[(&job.0, Type::INT8), (&limit, Type::INT8)]).await?;
    let most = limit.saturating_mul(EDGES_A_TASK);
    let edges = client.query_typed(EDGES, &[(&job.0, Type::INT8), (&most, Type::INT8)]).await?;
    Ok(Graph {
        tasks: tasks
            .iter()
            .map(|row| {
                Ok(GraphTask {
                    task_id: TaskId(row.try_get(0)?),
                    name: row.try_get(1)?,
                    status: status(row.try_get(2)?)?,
                    node: row.try_get(3)?,
                })
            })
            .collect::<Result<_, QueryError>>()?,
        edges: edges
            .iter()
            .map(|row| {
                Ok(GraphEdge { task_id: TaskId(row.try_get(0)?), depends_on: TaskId(row.try_get(1)?) })
            })
            .collect::<Result<_, QueryError>>()?,
    })
}

/// The latest attempts of a job, the newest first.
///
/// # Errors
/// See [`QueryError`].
pub async fn bars(client: &Client, job: JobId, limit: i64) -> Result<Vec<Bar>, QueryError> {
    let rows = client.query_typed(BARS, &[(&job.0, Type::INT8), (&limit, Type::INT8)]).await?;
    rows.iter()
        .map(|row| {
            Ok(Bar {
                task_id: TaskId(row.try_get(0)?),
                name: row.try_get(1)?,
                attempt: row.try_get(2)?,
                node: row.try_get(3)?,
                outcome: row.try_get(4)?,
                started_at: row.try_get(5)?,
                ended_at: row.try_get(6)?,
            })
        })
        .collect()
}
