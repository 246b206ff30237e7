//! Waiting for jobs and tasks, in SQL and by the command line.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::gate::Gate;
use crate::support::{Db, PATIENCE, Service, eventually, yardmaster};

async fn wait_error(client: &Client, call: &str) -> String {
    let error = client.batch_execute(&format!("SELECT yardmaster.{call}")).await.expect_err(call);
    error.as_db_error().unwrap().message().to_owned()
}

/// Scenario 29.
#[tokio::test]
async fn a_wait_ends_at_the_desired_status_or_says_why_not() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, task) = db.submit_one("SELECT 1").await;
    db.await_job(job, "finished").await;
    for call in [
        format!("job_wait({job})"),
        format!("job_wait({job}, 'finished')"),
        format!("task_wait({task})"),
        format!("task_wait({task}, 'done')"),
    ] {
        db.alice(&format!("SELECT yardmaster.{call}")).await;
    }
    // It was running once, but nobody saw that.
    let says = wait_error(&db.alice, &format!("job_wait({job}, 'running')")).await;
    assert_eq!(says, format!("job {job} is finished and will not become running"));
    let says = wait_error(&db.alice, &format!("task_wait({task}, 'error')")).await;
    assert_eq!(says, format!("task {task} is done and will not become error"));
}

/// SPEC 2.
#[tokio::test]
async fn a_wait_that_could_never_end_is_refused() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, _) = db.submit_one("SELECT 1").await;
    let call = format!("job_wait({job})");
    db.alice("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let says = wait_error(&db.alice, &call).await;
    assert!(says.contains("repeatable read"), "{says}");
    db.alice("ROLLBACK; BEGIN").await;
    let own = db.submit(serde_json::json!({ "task": [{ "command": "SELECT 1" }] })).await;
    let says = wait_error(&db.alice, &format!("job_wait({own})")).await;
    assert!(says.contains("was submitted in this transaction"), "{says}");
    db.alice("ROLLBACK").await;
}

/// Scenario 29.
#[tokio::test]
async fn a_wait_in_sql_hears_within_150_ms() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let heard = eventually(PATIENCE, async || {
        let gate = Gate::close(&db, 1).await;
        let (job, task) = db.submit_one(&gate.command()).await;
        db.await_task(task, "running").await;
        let waiter = db.connect("alice").await;
        let wait = tokio::spawn(async move {
            waiter.batch_execute(&format!("SELECT yardmaster.job_wait({job})")).await.unwrap();
            Instant::now()
        });
        db.await_true(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%job_wait%' AND usename = 'alice' AND datname = current_database()",
        )
        .await;
        gate.open().await;
        let ended = wait.await.unwrap();
        let late = since_the_end(&db, job, ended).await;
        (late <= Duration::from_millis(150)).then_some(())
    });
    assert!(heard.await.is_some(), "no wait in SQL ended within 150 ms of the event");
}

/// Scenario 29.
#[tokio::test]
async fn a_wait_by_the_command_line_hears_within_50_ms() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let heard = eventually(PATIENCE, async || {
        let gate = Gate::close(&db, 1).await;
        let (job, task) = db.submit_one(&gate.command()).await;
        db.await_task(task, "running").await;
        let mut command = yardmaster(&["job", "wait", &job.to_string()]);
        command.env("DATABASE_URL", db.url("alice"));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        let wait = tokio::task::spawn_blocking(move || (child.wait_with_output().unwrap(), Instant::now()));
        // It is connected and has asked, and so it waits.
        db.await_true(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND usename = 'alice'
                AND application_name LIKE 'yardmaster%' AND application_name NOT LIKE '%/%' AND state = 'idle'
                AND query <> ''",
        )
        .await;
        gate.open().await;
        let (told, ended) = wait.await.unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let late = since_the_end(&db, job, ended).await;
        (late <= Duration::from_millis(50)).then_some(())
    });
    assert!(heard.await.is_some(), "no wait of the command line ended within 50 ms of the event");
}

/// How long after the job's end this moment was.
async fn since_the_end(db: &Db, job: i64, moment: Instant) -> Duration {
    let sql = format!(
        "SELECT extract(epoch FROM clock_timestamp() - finished_at) FROM yardmaster.job WHERE job_id = {job}"
    );
    let seconds: f64 = db.value(&sql).await.parse().unwrap();
    Duration::from_secs_f64(seconds).saturating_sub(moment.elapsed())
}
