//! Scratch schemas that are about to be dropped.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::QueryError;
use crate::model::JobId;

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
