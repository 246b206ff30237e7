//! Retention: jobs that ended long ago, and completion records that nobody can ask for any more, go in small batches.
//!
//! Beside running work: each batch is a short transaction of the leader that takes no lock a user can hold. A job whose
//! row somebody has locked (a foreign key of an open transaction that adds a task) is skipped until the next batch.

use std::time::Duration;

use tokio_postgres::{Client, Statement};

use super::super::error::DbError;
use super::super::node::Node;
use super::super::pipeline::Pipeline;
use super::leadership::{self, Office};

/// Tasks removed in one batch, of as many jobs as it takes; also how many records.
const BATCH: i64 = 2_000;
/// Jobs hidden, or forgotten, in one batch.
const JOBS: i64 = 500;
/// How often a batch is looked for.
pub const EVERY: Duration = Duration::from_secs(2);

const BEGIN: &str = "BEGIN";

/// Hides jobs whose time is over as if somebody had asked to delete them, so that nobody sees half a job; their keys are
/// free from then on. `$1` and `$2` are how long finished ones, and failed or cancelled ones, are kept, in seconds; `$3`
/// jobs at most, and none while so many wait for their removal. Wants `job_state_ended`.
///
/// A job is left alone while somebody's transaction holds it (a foreign key of a new task), while a task of it is not
/// admitted, and while a request is not carried out: it may live on.
const HIDE: &str = "
WITH old AS MATERIALIZED (
    SELECT o.job_id
      FROM (VALUES ('finished'::yardmaster.job_status, $1::float8), ('failed', $2::float8), ('cancelled', $2::float8)) k(status, keep)
     CROSS JOIN LATERAL (
           SELECT p.job_id FROM yardmaster.job_state j JOIN yardmaster.job_spec p ON p.job_id = j.job_id
            WHERE j.status = k.status AND NOT j.delete_requested AND j.finished_at < now() - k.keep * interval '1 second'
              AND NOT EXISTS (SELECT FROM yardmaster.request r WHERE r.job_id = p.job_id AND r.handled_at IS NULL)
              AND NOT EXISTS (SELECT FROM yardmaster.task_spec t WHERE t.job_id = p.job_id
                                 AND (SELECT s.task_id FROM yardmaster.task_state s WHERE s.task_id = t.task_id) IS NULL)
            ORDER BY j.finished_at LIMIT $3 FOR UPDATE OF j, p SKIP LOCKED) o
     WHERE (SELECT count(*) FROM (SELECT FROM yardmaster.job_state d WHERE d.delete_requested LIMIT $3) n) < $3
), freed AS (
    UPDATE yardmaster.job_spec p SET key = NULL FROM old o WHERE p.job_id = o.job_id AND p.key IS NOT NULL
)
UPDATE yardmaster.job_state j SET delete_requested = true FROM old o WHERE j.job_id = o.job_id";

/// Removes up to `$1` tasks of up to `$2` hidden jobs, with their edges and attempts. Answers how many. Wants
/// `job_state_deleted`.
const TASKS: &str = "
WITH hidden AS MATERIALIZED (
    SELECT p.job_id FROM yardmaster.job_state j JOIN yardmaster.job_spec p ON p.job_id = j.job_id
     WHERE j.delete_requested AND j.finished_at IS NOT NULL
       AND NOT EXISTS (SELECT FROM yardmaster.request r WHERE r.job_id = p.job_id AND r.handled_at IS NULL)
     ORDER BY j.job_id LIMIT $2 FOR UPDATE OF p SKIP LOCKED
), doomed AS MATERIALIZED (
    SELECT t.task_id FROM hidden h CROSS JOIN LATERAL (
           SELECT t.task_id FROM yardmaster.task_spec t WHERE t.job_id = h.job_id ORDER BY t.task_id LIMIT $1) t LIMIT $1
), edges AS (
    DELETE FROM yardmaster.task_depend e USING doomed d WHERE e.task_id = d.task_id
), attempts AS (
    DELETE FROM yardmaster.attempt_log a USING doomed d WHERE a.task_id = d.task_id
), states AS (
    DELETE FROM yardmaster.task_state s USING doomed d WHERE s.task_id = d.task_id
), specs AS (
    DELETE FROM yardmaster.task_spec t USING doomed d WHERE t.task_id = d.task_id
)
SELECT count(*) FROM doomed";

/// Removes up to `$1` hidden jobs whose tasks are gone, with their requests. Answers how many. A task that came in the very
/// moment makes the foreign key refuse the batch, and the next one takes it along.
const EMPTIED: &str = "
WITH emptied AS MATERIALIZED (
    SELECT p.job_id FROM yardmaster.job_state j JOIN yardmaster.job_spec p ON p.job_id = j.job_id
     WHERE j.delete_requested AND j.finished_at IS NOT NULL
       AND NOT EXISTS (SELECT FROM yardmaster.task_spec t WHERE t.job_id = p.job_id)
       AND NOT EXISTS (SELECT FROM yardmaster.request r WHERE r.job_id = p.job_id AND r.handled_at IS NULL)
     ORDER BY j.job_id LIMIT $1 FOR UPDATE OF j, p SKIP LOCKED
), edges AS (
    DELETE FROM yardmaster.task_depend e USING emptied d WHERE e.job_id = d.job_id
), requests AS (
    DELETE FROM yardmaster.request r USING emptied d WHERE r.job_id = d.job_id
), states AS (
    DELETE FROM yardmaster.job_state s USING emptied d WHERE s.job_id = d.job_id
), specs AS (
    DELETE FROM yardmaster.job_spec p USING emptied d WHERE p.job_id = d.job_id
)
SELECT count(*) FROM emptied";

/// Removes up to `$2` records older than `$1` seconds whose task is not running: its backends are known gone. Answers
/// how many.
const RECORDS: &str = "
WITH removed AS (
    DELETE FROM yardmaster.record r
     WHERE r.ctid = ANY (ARRAY(SELECT o.ctid FROM yardmaster.record o
                                WHERE o.written_at < now() - $1::float8 * interval '1 second'
                                  AND NOT EXISTS (SELECT FROM yardmaster.task_state s
                                                   WHERE s.task_id = o.task_id AND s.status IN ('running', 'cancelling'))
                                LIMIT $2))
    RETURNING 1
)
SELECT count(*) FROM removed";

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

/// Requests about nodes, which belong to no job, longer ago than `$1` seconds. Wants `request_node`.
const NODE_REQUESTS: &str = "
DELETE FROM yardmaster.request r WHERE r.job_id IS NULL AND r.handled_at < now() - $1::float8 * interval '1 second'";

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
    ("HIDE", HIDE),
    ("REMOVE_TASKS", TASKS),
    ("REMOVE_JOBS", EMPTIED),
    ("RECORDS", RECORDS),
    ("NODE_REQUESTS", NODE_REQUESTS),
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

/// Removes what is past its retention, on a connection of its own.
#[derive(Debug)]
pub struct Janitor {
    client: Client,
    office: Office,
    fence: Statement,
    hide: Statement,
    tasks: Statement,
    emptied: Statement,
    records: Statement,
    node_requests: Statement,
}

impl Janitor {
    /// Prepares a connection for removals.
    ///
    /// # Errors
    /// When a statement cannot be prepared.
    pub async fn new(client: Client, office: Office) -> Result<Janitor, DbError> {
        let prepare =
            async |sql: &str| client.prepare(sql).await.map_err(DbError::postgres("prepare retention"));
        Ok(Janitor {
            fence: prepare(leadership::FENCE).await?,
            hide: prepare(HIDE).await?,
            tasks: prepare(TASKS).await?,
            emptied: prepare(EMPTIED).await?,
            records: prepare(RECORDS).await?,
            node_requests: prepare(NODE_REQUESTS).await?,
            office,
            client,
        })
    }

    /// The connection, for what else the janitor does between batches.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Removes one batch, in one transaction that is sent whole; says whether there may be more.
    ///
    /// # Errors
    /// When a statement fails; the batch did not happen then.
    pub async fn sweep(&self, keep: Keep) -> Result<bool, DbError> {
        let Office { epoch, token, term } = self.office;
        let [finished, failed, records] = [keep.finished, keep.failed, keep.records].map(|d| d.as_secs_f64());
        let mut pipe = Pipeline::new(&self.client);
        pipe.batch("begin a removal", BEGIN);
        pipe.query("check the epoch", &self.fence, &[&epoch.0, &token, &term]);
        pipe.query("hide old jobs", &self.hide, &[&finished, &failed, &JOBS]);
        let tasks = pipe.query("remove old tasks", &self.tasks, &[&BATCH, &JOBS]);
        let jobs = pipe.query("remove old jobs", &self.emptied, &[&JOBS]);
        let records = pipe.query("remove old records", &self.records, &[&records, &BATCH]);
        pipe.query("remove old requests about nodes", &self.node_requests, &[&failed]);
        pipe.batch("commit a removal", "COMMIT");
        let mut answers = pipe.run().await?;
        let [tasks, jobs, records] =
            [tasks, jobs, records].map(|step| answers.take(Some(step)).first().map_or(0, |row| row.get(0)));
        if tasks + jobs + records > 0_i64 {
            tracing::debug!(tasks, jobs, records, "removed what is past its retention");
        }
        // A batch that removed nothing did all there is to do: what is hidden in one is removed in the same.
        Ok(tasks + jobs + records > 0)
    }
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
