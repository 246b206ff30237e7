//! Retention: jobs that ended long ago, and completion records that nobody can ask for any more, go in small batches.
//!
//! Beside running work: each batch is a short transaction of the leader that takes no lock a user can hold. A job whose
//! row somebody has locked (a foreign key of an open transaction that adds a task) is skipped until the next batch.

use std::time::Duration;

use tokio_postgres::Client;

use super::super::error::DbError;
use super::super::node::Node;
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

/// How often the records on nodes are looked over.
pub const NODES_EVERY: Duration = Duration::from_secs(60);

/// On a node: up to `$2` records older than `$1` seconds.
const OLD_ON_NODE: &str = "
SELECT r.task_id, r.task_key, r.series, r.written_at < now() - $3::float8 * interval '1 second' FROM yardmaster.record r
 WHERE r.written_at < now() - $1::float8 * interval '1 second' LIMIT $2";

/// At home: which of these tasks (`$1`, `$2` their keys) are ours and not running, so that nobody asks for their records.
const OURS_AT_REST: &str = "
SELECT g.place FROM unnest($1::bigint[], $2::uuid[]) WITH ORDINALITY AS g(task_id, task_key, place)
  JOIN yardmaster.task_spec t ON t.task_id = g.task_id AND t.task_key = g.task_key
  JOIN yardmaster.task_state s ON s.task_id = g.task_id AND s.status NOT IN ('running', 'cancelling')";

/// On a node: removes these records.
const REMOVE_ON_NODE: &str = "
DELETE FROM yardmaster.record r USING unnest($1::bigint[], $2::uuid[], $3::integer[]) AS g(task_id, task_key, series)
 WHERE r.task_id = g.task_id AND r.task_key = g.task_key AND r.series = g.series RETURNING 1";

/// A node may serve several installations, and each knows its own tasks only: what nobody claims goes after this long.
const UNCLAIMED: Duration = Duration::from_secs(30 * 24 * 3600);

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
pub const STATEMENTS: &[(&str, &str)] = &[
    ("JOBS", JOBS),
    ("EMPTY_JOBS", EMPTY_JOBS),
    ("RECORDS", RECORDS),
    ("OLD_ON_NODE", OLD_ON_NODE),
    ("OURS_AT_REST", OURS_AT_REST),
    ("REMOVE_ON_NODE", REMOVE_ON_NODE),
    ("GROWN", GROWN),
];

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

/// Removes one batch of records from a node, of tasks that are not running; says whether there may be more.
///
/// # Errors
/// When the node or home cannot be asked.
pub async fn sweep_node(node: &Node, home: &Client, keep: Duration) -> Result<bool, DbError> {
    let unclaimed = keep.max(UNCLAIMED).as_secs_f64();
    let old =
        node.ask("look for old records", OLD_ON_NODE, &[&keep.as_secs_f64(), &BATCH, &unclaimed]).await?;
    if old.is_empty() {
        return Ok(false);
    }
    let keys = |i: usize| (old[i].get::<_, i64>(0), old[i].get::<_, uuid::Uuid>(1), old[i].get::<_, i32>(2));
    let all = 0..old.len();
    let (tasks, task_keys): (Vec<i64>, Vec<uuid::Uuid>) = all.clone().map(|i| (keys(i).0, keys(i).1)).unzip();
    let rows = home
        .query(OURS_AT_REST, &[&tasks, &task_keys])
        .await
        .map_err(DbError::postgres("look whose old records they are"))?;
    let ours: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let doomed = all.filter(|i| old[*i].get(3) || ours.contains(&(*i as i64 + 1)));
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    for (task, key, series) in doomed.map(keys) {
        a.push(task);
        b.push(key);
        c.push(series);
    }
    let removed = node.ask("remove old records", REMOVE_ON_NODE, &[&a, &b, &c]).await?.len();
    tracing::debug!(node = node.name(), removed, "removed records past their retention");
    // Records that nobody claims yet would be found again and again.
    Ok(removed > 0 && old.len() as i64 == BATCH)
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
