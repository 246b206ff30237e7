//! How soon people hear: the end of a wait, the end of a cancelled task; and what an idle service costs.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::process::Command;

use crate::report::{Beside, Report};
use crate::yard::{BINARY, Yard};

const SAMPLES: usize = 20;
/// How long the idle service is watched.
const IDLE: Duration = Duration::from_secs(20);

/// Between the end of a task and the end of `task wait` for it; between `job_cancel` and the task's end.
///
/// # Errors
/// When something does not work.
pub async fn waits(yard: &Yard, report: &mut Report) -> Result<()> {
    let mut waits = Vec::new();
    for _ in 0..SAMPLES {
        let task = one_task(yard, "SELECT pg_sleep(0.7)").await?;
        let told = Command::new(BINARY)
            .args(["task", "wait", &task.to_string(), "--database", &yard.app_url])
            .output()
            .await?;
        ensure!(told.status.success(), "task wait: {}", String::from_utf8_lossy(&told.stderr));
        let ago = "SELECT extract(epoch FROM clock_timestamp() - finished_at)::float8 FROM yardmaster.task WHERE task_id = $1";
        waits.push(1000.0 * yard.watcher.query_one(ago, &[&task]).await?.get::<_, f64>(0));
    }
    percentiles(report, "task wait returns after the end", &mut waits);

    let status = yard.watcher.prepare("SELECT status::text FROM yardmaster.task WHERE task_id = $1").await?;
    let mut cancels = Vec::new();
    for _ in 0..SAMPLES {
        let task = one_task(yard, "SELECT pg_sleep(60)").await?;
        until(yard, &status, task, "running").await?;
        let asked = Instant::now();
        yard.app.execute("SELECT yardmaster.task_cancel($1)", &[&task]).await?;
        until(yard, &status, task, "cancelled").await?;
        cancels.push(asked.elapsed().as_secs_f64() * 1000.0);
    }
    percentiles(report, "task_cancel to cancelled, running", &mut cancels);
    Ok(())
}

/// What a service without work asks and burns.
///
/// # Errors
/// When the server does not answer.
pub async fn idle(yard: &Yard, report: &mut Report) -> Result<()> {
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (asked, used) = (transactions(yard).await?, yard.usage().await?);
    tokio::time::sleep(IDLE).await;
    let (asked_after, used_after) = (transactions(yard).await?, yard.usage().await?);
    let seconds = IDLE.as_secs_f64();
    // One of them is our own question.
    report.plain("idle", "transactions a second", (asked_after - asked - 1.0).max(0.0) / seconds, "/s");
    report.plain(
        "idle",
        "processor, service",
        100.0 * (used_after.service - used.service) / seconds,
        "% core",
    );
    report.plain("idle", "processor, server", 100.0 * (used_after.server - used.server) / seconds, "% core");
    Ok(())
}

async fn transactions(yard: &Yard) -> Result<f64> {
    // Statistics come in with a delay of up to a second.
    let sql = "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = current_database()";
    Ok(yard.admin.query_one(sql, &[]).await?.get(0))
}

async fn one_task(yard: &Yard, command: &str) -> Result<i64> {
    let job = "SELECT yardmaster.job_submit(jsonb_build_object('task', jsonb_build_array(jsonb_build_object('command', $1::text))))";
    let job: i64 = yard.app.query_one(job, &[&command]).await?.get(0);
    let task = "SELECT task_id FROM yardmaster.task WHERE job_id = $1";
    Ok(yard.watcher.query_one(task, &[&job]).await?.get(0))
}

async fn until(yard: &Yard, status: &tokio_postgres::Statement, task: i64, wanted: &str) -> Result<()> {
    let started = Instant::now();
    while yard.watcher.query_one(status, &[&task]).await?.get::<_, String>(0) != wanted {
        ensure!(started.elapsed() < Duration::from_secs(30), "task {task} is not {wanted} after 30 s");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn percentiles(report: &mut Report, name: &str, samples: &mut [f64]) {
    samples.sort_by(f64::total_cmp);
    for percent in [50, 95] {
        let value = samples[(samples.len() * percent).div_ceil(100) - 1];
        report.beside(
            "waits",
            &format!("{name}, p{percent} of {}", samples.len()),
            value,
            "ms",
            Beside::Commit,
        );
    }
}
