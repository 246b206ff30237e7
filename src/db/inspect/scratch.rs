//! Scratch schemas as the catalog shows them.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::{QueryError, id_text};
use crate::model::JobId;

/// A scratch schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Schema {
    /// Its job, which may be gone.
    #[serde(serialize_with = "id_text")]
    pub job_id: i64,
    /// The node; empty for home.
    pub node: String,
    /// Whose it is.
    pub owner: String,
    /// Its name.
    pub schema_name: String,
    /// In use, kept or dropping.
    pub state: String,
    /// Why it is still there.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

const LIST: &str = "
    SELECT s.job_id, s.node, s.owner::text, s.schema_name::text, s.state, s.reason, s.since
      FROM yardmaster.scratch s ORDER BY s.job_id, s.node, s.owner";

/// All that the caller may see, by job.
///
/// # Errors
/// See [`QueryError`].
pub async fn list(client: &Client) -> Result<Vec<Schema>, QueryError> {
    let rows = client.query_typed(LIST, &[]).await?;
    let schema = |row: &tokio_postgres::Row| {
        Ok(Schema {
            job_id: row.try_get(0)?,
            node: row.try_get(1)?,
            owner: row.try_get(2)?,
            schema_name: row.try_get(3)?,
            state: row.try_get(4)?,
            reason: row.try_get(5)?,
            since: row.try_get(6)?,
        })
    };
    rows.iter().map(schema).collect()
}

/// By job; a few rows.
const LEFT: &str = "
    SELECT count(*) FROM yardmaster.scratch s
     WHERE s.job_id = ANY ($1) AND (s.state = 'dropping' OR s.reason = 'dropped next')";

/// How many schemas of the jobs are still to be dropped, now that these have ended.
///
/// # Errors
/// See [`QueryError`].
pub async fn left(client: &Client, jobs: &[JobId]) -> Result<i64, QueryError> {
    let ids: Vec<i64> = jobs.iter().map(|job| job.0).collect();
    let rows = client.query_typed(LEFT, &[(&ids, Type::INT8_ARRAY)]).await?;
    rows.first().map_or(Ok(0), |row| Ok(row.try_get(0)?))
}
