//! Retention: jobs that ended long ago, and completion records that nobody can ask for any more, go in small batches.
//!
//! Beside running work: each batch is a short transaction of the leader that takes no lock a user can hold. A job whose
//! row somebody has locked (a foreign key of an open transaction that adds a task) is skipped until the next batch.

use std::time::Duration;

use tokio_postgres::Client;

use super::super::error::DbError;
use super::leadership::{self, Office};

/// Tasks removed in one batch, of as many jobs as it takes.
const BATCH: i64 = 2_000;
/// How often a batch is looked for.
pub const EVERY: Duration = Duration::from_secs(5);

/// Removes up to `$3` tasks of ended jobs with their edges and attempts, then the jobs that have none left. `$1` and `$2`
/// are how long finished ones, and failed or cancelled ones, are kept, in seconds. Wants `job_state_ended`.
const JOBS: &str = "
WITH old AS MATERIALIZED (
    SELECT p.job_id FROM yardmaster.job_spec p
     WHERE p.job_id IN (SELECT j.job_id FROM yardmaster.job_state j
                         WHERE j.finished_at IS NOT NULL AND j.status IN ('finished', 'cancelled', 'failed')
                           AND (j.delete_requested
                                OR j.finished_at < now() - CASE j.status WHEN 'finished' THEN $1::float8 ELSE $2::float8 END * interval '1 second')
                         ORDER BY j.delete_requested DESC, j.finished_at LIMIT 100)
     FOR UPDATE SKIP LOCKED
), doomed AS MATERIALIZED (
    SELECT t.task_id, t.job_id FROM old o JOIN yardmaster.task_spec t ON t.job_id = o.job_id ORDER BY t.job_id, t.task_id LIMIT $3
), edges AS (
    DELETE FROM yardmaster.task_depend e USING doomed d WHERE e.task_id = d.task_id
), attempts AS (
    DELETE FROM yardmaster.attempt_log a USING doomed d WHERE a.task_id = d.task_id
), states AS (
    DELETE FROM yardmaster.task_state s USING doomed d WHERE s.task_id = d.task_id
), specs AS (
    DELETE FROM yardmaster.task_spec t USING doomed d WHERE t.task_id = d.task_id
)
SELECT (SELECT count(*) FROM doomed),
       ARRAY(SELECT o.job_id FROM old o
              WHERE (SELECT count(*) FROM yardmaster.task_spec t WHERE t.job_id = o.job_id)
                  = (SELECT count(*) FROM doomed d WHERE d.job_id = o.job_id))";

/// Removes jobs (`$1`) whose tasks are gone. A task added meanwhile makes the foreign key refuse, and nothing happens.
const EMPTY_JOBS: &str = "
WITH requests AS (DELETE FROM yardmaster.request r WHERE r.job_id = ANY ($1)),
     states AS (DELETE FROM yardmaster.job_state s WHERE s.job_id = ANY ($1))
DELETE FROM yardmaster.job_spec j WHERE j.job_id = ANY ($1)";

/// Removes up to `$2` records older than `$1` seconds whose task is not running: its backends are known gone.
const RECORDS: &str = "
DELETE FROM yardmaster.record r
 WHERE r.ctid = ANY (ARRAY(SELECT o.ctid FROM yardmaster.record o
                            WHERE o.written_at < now() - $1::float8 * interval '1 second'
                              AND NOT EXISTS (SELECT FROM yardmaster.task_state s
                                               WHERE s.task_id = o.task_id AND s.status IN ('running', 'cancelling'))
                            LIMIT $2))";

/// Tables that are more than twice as large as when they were last analyzed. Plans are made from statistics and kept, and
/// autovacuum comes by once a minute only: too late for who submits 100,000 tasks into an empty catalog.
const GROWN: &str = "
SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'yardmaster' AND c.relkind = 'r' AND c.relname = ANY ($1)
   AND pg_relation_size(c.oid) / current_setting('block_size')::bigint > 2 * c.relpages + 10";

/// The tables whose growth matters, with the statement that looks at each.
const ANALYZE: [(&str, &str); 5] = [
    ("job_spec", "ANALYZE yardmaster.job_spec"),
    ("task_spec", "ANALYZE yardmaster.task_spec"),
    ("task_depend", "ANALYZE yardmaster.task_depend"),
    ("job_state", "ANALYZE yardmaster.job_state"),
    ("task_state", "ANALYZE yardmaster.task_state"),
];

/// The statements of this family, for the test that prepares them all.
pub const STATEMENTS: &[(&str, &str)] =
    &[("JOBS", JOBS), ("EMPTY_JOBS", EMPTY_JOBS), ("RECORDS", RECORDS), ("GROWN", GROWN)];

/// How long things are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Finished jobs.
    pub finished: Duration,
    /// Failed and cancelled jobs.
    pub failed: Duration,
    /// Completion records.
    pub records: Duration,
}

/// Removes one batch; says whether there may be more.
///
/// # Errors
/// When a statement fails; the batch did not happen then.
pub async fn sweep(client: &mut Client, office: Office, keep: Keep) -> Result<bool, DbError> {
    let seconds = |d: Duration| d.as_secs_f64();
    let failed = DbError::postgres;
    let removal = client.transaction().await.map_err(failed("begin a removal"))?;
    removal
        .query_one(leadership::FENCE, &[&office.epoch.0, &office.token, &office.term])
        .await
        .map_err(failed("check the epoch"))?;
    let row = removal
        .query_one(JOBS, &[&seconds(keep.finished), &seconds(keep.failed), &BATCH])
        .await
        .map_err(failed("remove old tasks"))?;
    let (tasks, empty): (i64, Vec<i64>) = (row.get(0), row.get(1));
    if !empty.is_empty() {
        removal.execute(EMPTY_JOBS, &[&empty]).await.map_err(failed("remove old jobs"))?;
    }
    let records = removal
        .execute(RECORDS, &[&seconds(keep.records), &BATCH])
        .await
        .map_err(failed("remove old records"))?;
    removal.commit().await.map_err(failed("commit a removal"))?;
    if tasks > 0 || !empty.is_empty() || records > 0 {
        tracing::debug!(tasks, jobs = empty.len(), records, "removed what is past its retention");
    }
    Ok(tasks == BATCH || empty.len() >= 100 || records == BATCH.unsigned_abs())
}

/// Brings the statistics of tables up to date that have grown much since they were last looked at.
///
/// # Errors
/// When a statement fails; plans stay as they are then.
pub async fn analyze_grown(client: &Client) -> Result<(), DbError> {
    let names: Vec<&str> = ANALYZE.iter().map(|(name, _)| *name).collect();
    let rows = client.query(GROWN, &[&names]).await.map_err(DbError::postgres("look for grown tables"))?;
    for row in rows {
        let grown: String = row.get(0);
        for (_, statement) in ANALYZE.iter().filter(|(name, _)| *name == grown) {
            client.batch_execute(statement).await.map_err(DbError::postgres("analyze a grown table"))?;
        }
    }
    Ok(())
}
