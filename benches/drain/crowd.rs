//! Whether the work of a task grows with the tasks around it: the same drain beside an empty catalog and beside a million
//! tasks that wait for a full node, a million of a paused job, and a million that are done.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::parts;
use crate::report::Report;
use crate::yard::Yard;

/// Tasks of each crowd.
const CROWD: i64 = 1_000_000;
/// Tasks of the drain that is compared.
const DRAIN: i64 = 20_000;
/// A logical node that no task of the drain burdens. One task holds its only slot.
const NODE: &str = "crowded";

/// Rows as `job_submit` would have made them, without its checks, which are measured elsewhere. `$1` is the job.
const ROWS: &str = "
INSERT INTO yardmaster.task_spec (job_id, owner, owner_oid, submitted_by, command, nodes_involved)
SELECT $1, 'app', 'app'::regrole, 'app', 'SELECT 1', CASE WHEN $3 THEN ARRAY[$4] END FROM generate_series(1, $2::bigint)";

/// Tasks that are done, with their attempts, as the leader would have left them.
const DONE: &str = "
WITH t AS (
    INSERT INTO yardmaster.task_spec (job_id, owner, owner_oid, submitted_by, command, submit_xid)
    SELECT $1, 'app', 'app'::regrole, 'app', 'SELECT 1', '3'::xid8 FROM generate_series(1, $2::bigint) RETURNING task_id, job_id
), s AS (
    INSERT INTO yardmaster.task_state (task_id, job_id, lane, queue_rank, status, ready, attempt, started_at, finished_at)
    SELECT t.task_id, t.job_id, (SELECT min(lane) FROM yardmaster.lane), 0, 'done', false, 1, now(), now() FROM t
)
INSERT INTO yardmaster.attempt_log (task_id, attempt, node, outcome, message, started_at, ended_at)
SELECT t.task_id, 1, '', 'done', 'SELECT 1', now(), now() FROM t";

/// Measures it.
///
/// # Errors
/// When something does not work.
pub async fn crowd(yard: &Yard, report: &mut Report) -> Result<()> {
    let alone = drain(yard).await?;
    report.plain("crowd", "drain beside nothing", alone.rate, "/s");

    let holder = "SELECT yardmaster.job_submit(jsonb_build_object('task', jsonb_build_array(jsonb_build_object(\
                  'command', 'SELECT pg_sleep(3600)', 'nodes_involved', jsonb_build_array($1::text)))))";
    let holder: i64 = yard.app.query_one(holder, &[&NODE]).await?.get(0);
    let running = "SELECT status::text FROM yardmaster.task WHERE job_id = $1";
    yard.until(holder, running, "running").await?;
    let waiting = bring(yard, true).await?;
    beside(yard, report, &alone, "1,000,000 that wait for a full node").await?;

    let paused = new_job(yard).await?;
    yard.app.execute("SELECT yardmaster.job_pause($1)", &[&paused]).await?;
    yard.until(paused, "SELECT paused::text FROM yardmaster.job WHERE job_id = $1", "true").await?;
    fill(yard, paused, false).await?;
    beside(yard, report, &alone, "1,000,000 more of a paused job").await?;

    let done = new_job(yard).await?;
    yard.admin.execute(DONE, &[&done, &CROWD]).await?;
    yard.admin
        .batch_execute("VACUUM ANALYZE yardmaster.task_state, yardmaster.task_spec, yardmaster.attempt_log")
        .await?;
    beside(yard, report, &alone, "1,000,000 more that are done").await?;

    for job in [holder, waiting, paused] {
        yard.app.execute("SELECT yardmaster.job_cancel($1)", &[&job]).await?;
    }
    Ok(())
}

struct Drained {
    rate: f64,
    server: f64,
}

/// The better of two drains: what disturbs one seldom disturbs both.
async fn drain(yard: &Yard) -> Result<Drained> {
    let mut best: Option<Drained> = None;
    for _ in 0..2 {
        let job = parts::submit_job(yard, "jsonb_build_object('command', 'SELECT 1')", DRAIN).await?;
        let submitted = yard.usage().await?;
        yard.finished(job).await?;
        let after = yard.usage().await?;
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        let n = DRAIN as f64;
        let drained = Drained {
            rate: n / parts::worked(yard, job).await?,
            server: (after.server - submitted.server) * 1e6 / n,
        };
        best = best.filter(|b| b.rate >= drained.rate).or(Some(drained));
    }
    best.context("no drain")
}

async fn beside(yard: &Yard, report: &mut Report, alone: &Drained, crowd: &str) -> Result<()> {
    let drained = drain(yard).await?;
    let name = format!("drain beside {crowd}");
    report.relative(
        "crowd",
        &name,
        drained.rate,
        "/s",
        ("the drain beside nothing", drained.rate / alone.rate),
    );
    let cpu = ("the same beside nothing", drained.server / alone.server);
    report.relative("crowd", &format!("{name}: server"), drained.server, "µs", cpu);
    Ok(())
}

async fn new_job(yard: &Yard) -> Result<i64> {
    Ok(yard.app.query_one("INSERT INTO yardmaster.job DEFAULT VALUES RETURNING job_id", &[]).await?.get(0))
}

async fn bring(yard: &Yard, crowded: bool) -> Result<i64> {
    let job = new_job(yard).await?;
    fill(yard, job, crowded).await?;
    Ok(job)
}

/// Adds the rows and waits until the leader has admitted them all.
async fn fill(yard: &Yard, job: i64, crowded: bool) -> Result<()> {
    // Without triggers.
    yard.admin.batch_execute("SET session_replication_role = replica").await?;
    yard.admin.execute(ROWS, &[&job, &CROWD, &crowded, &NODE]).await?;
    yard.admin.batch_execute("RESET session_replication_role").await?;
    yard.admin.batch_execute("NOTIFY yardmaster").await?;
    let admitted = "SELECT CASE WHEN n_tasks > 0 AND NOT EXISTS (SELECT FROM yardmaster.task_spec t WHERE t.job_id = j.job_id \
                    AND NOT EXISTS (SELECT FROM yardmaster.task_state s WHERE s.task_id = t.task_id)) THEN 'admitted' ELSE 'new' END \
                    FROM yardmaster.job_state j WHERE j.job_id = $1";
    let started = Instant::now();
    while yard.admin.query_one(admitted, &[&job]).await?.get::<_, String>(0) != "admitted" {
        ensure!(started.elapsed().as_secs() < 300, "a million tasks were not admitted within 5 minutes");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    yard.admin.batch_execute("VACUUM ANALYZE yardmaster.task_state, yardmaster.task_spec").await?;
    Ok(())
}
