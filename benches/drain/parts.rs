//! The parts of the benchmark. Each submits as the ordinary user `app`, whose tasks run in sessions of `app`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::report::{Beside, Report};
use crate::yard::{BINARY, Yard};
use crate::yardsticks::BULK;

/// Tasks of one drain.
const DRAIN: i64 = 20_000;
/// Tasks measured one by one.
const SAMPLES: usize = 200;
/// Tasks of the large submission.
const LARGE: i64 = 100_000;

/// Submits a job given as the SQL of its list of tasks; `$1` is their number.
fn submit_sql(tasks: &str) -> String {
    format!(
        "SELECT yardmaster.job_submit(jsonb_build_object('task', (SELECT jsonb_agg({tasks}) FROM generate_series(1, $1::bigint) i)))"
    )
}

/// How long a job worked, in seconds: from its first claim to its last settlement.
const WORKED: &str =
    "SELECT extract(epoch FROM finished_at - started_at)::float8 FROM yardmaster.job WHERE job_id = $1";

/// The seconds that a finished job worked.
pub async fn worked(yard: &Yard, job: i64) -> Result<f64> {
    Ok(yard.watcher.query_one(WORKED, &[&job]).await?.get(0))
}

/// Submits `n` tasks as one job; `tasks` makes the i-th of them.
pub async fn submit_job(yard: &Yard, tasks: &str, n: i64) -> Result<i64> {
    Ok(yard.app.query_one(&submit_sql(tasks), &[&n]).await?.get(0))
}

/// One task at a time in an idle service. The task writes the time at which it runs; "done" is when another session sees
/// the status, asking every 200 µs.
pub async fn latency(yard: &Yard, report: &mut Report) -> Result<()> {
    yard.app.batch_execute("CREATE TABLE app.stamp (at timestamptz NOT NULL)").await?;
    let submit = "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"INSERT INTO app.stamp VALUES (clock_timestamp())\"}]}')";
    let submit = yard.app.prepare(submit).await?;
    let status = yard.watcher.prepare("SELECT status::text FROM yardmaster.task WHERE job_id = $1").await?;
    let last = yard.watcher.prepare("SELECT extract(epoch FROM max(at))::float8 FROM app.stamp").await?;
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    // The first one opens the session and is not counted.
    for sample in 0..=SAMPLES {
        let job: i64 = yard.app.query_one(&submit, &[]).await?.get(0);
        let (committed, at) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
        while yard.watcher.query_one(&status, &[&job]).await?.get::<_, String>(0) != "done" {
            ensure!(committed.elapsed() < Duration::from_secs(30), "job {job} is not done after 30 s");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let done = committed.elapsed();
        let start: f64 = yard.watcher.query_one(&last, &[]).await?.get(0);
        if sample > 0 {
            starts.push((start - at.as_secs_f64()) * 1000.0);
            ends.push(done.as_secs_f64() * 1000.0);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (name, samples) in [("commit to start", &mut starts), ("commit to done", &mut ends)] {
        samples.sort_by(f64::total_cmp);
        for percent in [50, 95, 99] {
            let value = samples[(samples.len() * percent).div_ceil(100) - 1];
            report.beside(
                "latency",
                &format!("{name}, p{percent} of {SAMPLES}"),
                value,
                "ms",
                Beside::Commit,
            );
        }
    }
    Ok(())
}

/// 20,000 tasks that only read, and as many that insert a row: how fast, and at what cost.
pub async fn drain(yard: &Yard, report: &mut Report) -> Result<()> {
    yard.app.batch_execute("CREATE TABLE app.tiny (id bigserial PRIMARY KEY, x integer)").await?;
    let reading = "jsonb_build_object('command', 'SELECT 1')";
    let writing = "jsonb_build_object('command', format('INSERT INTO app.tiny (x) VALUES (%s)', i))";
    drain_of(yard, report, "SELECT 1", reading, &["life_1x1", "life_b100_pipe", "select1"]).await?;
    drain_of(yard, report, "one-row insert", writing, &["life_1x1", "life_b100_pipe", "commit_insert"])
        .await?;
    let counted = yard.app.query_one("SELECT count(*), count(DISTINCT x) FROM app.tiny", &[]).await?;
    let (rows, distinct): (i64, i64) = (counted.get(0), counted.get(1));
    ensure!((rows, distinct) == (DRAIN, DRAIN), "{DRAIN} inserts left {rows} rows, {distinct} distinct ones");
    Ok(())
}

async fn drain_of(
    yard: &Yard,
    report: &mut Report,
    what: &str,
    tasks: &str,
    beside: &[&'static str],
) -> Result<()> {
    yard.app.batch_execute("BEGIN").await?;
    let job = submit_job(yard, tasks, DRAIN).await?;
    let before = yard.usage().await?;
    yard.app.batch_execute("COMMIT").await?;
    let committed = Instant::now();
    yard.finished(job).await?;
    let seen = committed.elapsed().as_secs_f64();
    let after = yard.usage().await?;
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let n = DRAIN as f64;
    let rate = n / worked(yard, job).await?;
    for script in beside {
        report.beside("drain", &format!("{what}: tasks a second"), rate, "/s", Beside::Rate(script));
    }
    report.plain("drain", &format!("{what}: commit to finished, {DRAIN} tasks"), seen, "s");
    let each = |used: f64| used * 1e6 / n;
    report.plain(
        "drain",
        &format!("{what}: CPU a task, service"),
        each(after.service - before.service),
        "µs",
    );
    report.plain("drain", &format!("{what}: CPU a task, server"), each(after.server - before.server), "µs");
    report.plain("drain", &format!("{what}: WAL a task"), (after.wal - before.wal) / n, "bytes");
    report.plain(
        "drain",
        &format!("{what}: flushes of WAL a task"),
        (after.flushes - before.flushes) / n,
        "",
    );
    Ok(())
}

/// Dependencies: how long a hop takes, and what breadth costs.
pub async fn graphs(yard: &Yard, report: &mut Report) -> Result<()> {
    let command = "'command', 'SELECT 1', 'name', 't' || i";
    let chain = format!(
        "jsonb_build_object({command}) || CASE WHEN i > 1 THEN jsonb_build_object('depends_on', ARRAY['t' || i - 1]) ELSE '{{}}' END"
    );
    let (seconds, _) = graph(yard, &chain, 1000).await?;
    report.beside("graphs", "chain of 1,000: a hop", seconds, "ms", Beside::Commit);

    let layer =
        "(SELECT jsonb_agg('t' || k) FROM generate_series((i - 1) / 50 * 50 - 49, (i - 1) / 50 * 50) k)";
    let layers = format!(
        "jsonb_build_object({command}) || CASE WHEN i > 50 THEN jsonb_build_object('depends_on', {layer}) ELSE '{{}}' END"
    );
    let (seconds, n) = graph(yard, &layers, 2500).await?;
    report.beside("graphs", "50 layers of 50, 122,500 edges", n / seconds, "/s", Beside::Rate("life_1x1"));

    let fan = format!(
        "jsonb_build_object({command}) || CASE WHEN i = 1 THEN '{{}}' WHEN i < $1 THEN jsonb_build_object('depends_on', ARRAY['t1']) \
         ELSE jsonb_build_object('depends_on', (SELECT jsonb_agg('t' || k) FROM generate_series(2, $1 - 1) k)) END"
    );
    let (seconds, n) = graph(yard, &fan, 10_001).await?;
    report.beside("graphs", "fan 1 → 9,999 → 1", n / seconds, "/s", Beside::Rate("life_1x1"));
    Ok(())
}

/// Runs a graph; answers the seconds it worked and the number of its tasks.
async fn graph(yard: &Yard, tasks: &str, n: i64) -> Result<(f64, f64)> {
    let job = submit_job(yard, tasks, n).await?;
    yard.finished(job).await?;
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    Ok((worked(yard, job).await?, n as f64))
}

/// One job of 100,000 tasks, three ways; each is cancelled as soon as it has started.
pub async fn submit(yard: &Yard, report: &mut Report) -> Result<()> {
    let task = "jsonb_build_object('command', 'SELECT ' || i)";
    let file = yard.folder.path().join("large.toml");
    let text: String =
        (1..=LARGE).map(|i| format!("[[task]]\nname = \"t{i}\"\ncommand = \"SELECT {i}\"\n")).collect();
    std::fs::write(&file, text)?;

    let started = Instant::now();
    let mut command = Command::new(BINARY);
    let told = command
        .args(["job", "submit", "-o", "json", "--database", &yard.app_url])
        .arg(&file)
        .output()
        .await?;
    let taken = started.elapsed();
    let complaint = String::from_utf8_lossy(&told.stderr);
    ensure!(told.status.success(), "job submit: {}", complaint.lines().next().unwrap_or_default());
    let jobs: serde_json::Value = serde_json::from_slice(&told.stdout)?;
    let job = jobs[0]["job_id"].as_str().context("no job_id in the answer")?.parse()?;
    submitted(yard, report, "job file", job, taken).await?;

    let started = Instant::now();
    let job = submit_job(yard, task, LARGE).await?;
    submitted(yard, report, "job_submit(jsonb)", job, started.elapsed()).await?;

    let started = Instant::now();
    yard.app.batch_execute("BEGIN").await?;
    let job: i64 =
        yard.app.query_one("INSERT INTO yardmaster.job DEFAULT VALUES RETURNING job_id", &[]).await?.get(0);
    let insert = "INSERT INTO yardmaster.task (job_id, command) SELECT $1, 'SELECT ' || i FROM generate_series(1, $2::bigint) i";
    yard.app.execute(insert, &[&job, &LARGE]).await?;
    yard.app.batch_execute("COMMIT").await?;
    submitted(yard, report, "INSERT INTO task", job, started.elapsed()).await
}

async fn submitted(yard: &Yard, report: &mut Report, how: &str, job: i64, taken: Duration) -> Result<()> {
    let committed = Instant::now();
    let begun = "SELECT CASE WHEN started_at IS NULL THEN 'waiting' ELSE 'begun' END FROM yardmaster.job WHERE job_id = $1";
    yard.until(job, begun, "begun").await?;
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let rate = LARGE as f64 / taken.as_secs_f64();
    report.beside("submit", &format!("{LARGE} tasks by {how}"), rate, "tasks/s", Beside::Rate(BULK));
    report.plain(
        "submit",
        &format!("{how}: commit to first start"),
        committed.elapsed().as_secs_f64() * 1000.0,
        "ms",
    );
    yard.app.execute("SELECT yardmaster.job_cancel($1)", &[&job]).await?;
    yard.until(job, "SELECT state::text FROM yardmaster.job WHERE job_id = $1", "cancelled").await
}
