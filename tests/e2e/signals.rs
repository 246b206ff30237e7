//! SIGTERM and SIGINT.

use nix::sys::signal::Signal;

use crate::gate::{Gate, wait_at};
use crate::support::{Db, Launch, Service};

const ONE_AT_A_TIME: &str = "[limits]\nmax_task_executors = 1\n[shutdown]\ngrace = \"300ms\"\n";

/// Scenario 20.
#[tokio::test]
async fn sigterm_stops_what_runs_and_the_next_start_goes_on() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let gate = Gate::close(&db, 1).await;
    let mut service = Launch::on(&db).settings(ONE_AT_A_TIME).start().await;
    let (first, running) = db.submit_one(&format!("INSERT INTO r VALUES (1); {}", gate.command())).await;
    let (second, waiting) = db.submit_one("INSERT INTO r VALUES (2)").await;
    db.await_task(running, "running").await;
    assert_eq!(service.stop().await, 0);
    let task = db.task(running).await;
    assert_eq!((task.status.as_str(), task.retry_count, task.interruptions), ("runnable", 0, 1));
    assert_eq!((db.status(waiting).await.as_str(), db.task(waiting).await.attempt), ("runnable", 0));
    assert_eq!(db.value("SELECT count(*) FROM r").await, "0");
    db.await_true("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'yardmaster %')")
        .await;
    gate.open().await;
    service.restart().await;
    db.await_job(first, "finished").await;
    db.await_job(second, "finished").await;
    assert_eq!(db.value("SELECT string_agg(v::text, ' ' ORDER BY v) FROM r").await, "1 2");
}

/// Scenario 20: the grace is there to be used.
#[tokio::test]
async fn a_task_that_ends_within_the_grace_is_done() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let mut service = Launch::on(&db).settings("[shutdown]\ngrace = \"1m\"").start().await;
    let (job, _) = db.submit_one(&gate.command()).await;
    gate.await_waiters(&db, 1).await;
    service.signal(Signal::SIGTERM);
    service.await_log("terminating").await;
    gate.open().await;
    assert_eq!(service.wait_exit().await, 0);
    assert_eq!(db.job(job).await, "finished");
}

/// SPEC 6: a second SIGTERM skips the grace.
#[tokio::test]
async fn a_second_sigterm_skips_the_grace() {
    let db = Db::new().await;
    let mut service = Launch::on(&db).settings("[shutdown]\ngrace = \"1h\"").start().await;
    let (_, task) = db.submit_one("SELECT pg_sleep(3600)").await;
    db.await_task(task, "running").await;
    service.signal(Signal::SIGTERM);
    service.await_log("terminating").await;
    service.signal(Signal::SIGTERM);
    assert_eq!(service.wait_exit().await, 0);
    let task = db.task(task).await;
    assert_eq!((task.status.as_str(), task.interruptions, task.retry_count), ("runnable", 1, 0));
}

/// Scenario 21.
#[tokio::test]
async fn sigint_cancels_the_jobs_that_run_here_and_no_others() {
    let db = Db::new().await;
    let mut service = Launch::on(&db).settings("[limits]\nmax_task_executors = 1\n").start().await;
    let running = db
        .submit(serde_json::json!({ "task": [
            { "name": "a", "command": "SELECT pg_sleep(60)" },
            { "name": "b", "command": "SELECT 1", "depends_on": ["a"] },
            { "name": "c", "command": "SELECT 1" },
        ]}))
        .await;
    db.await_task(db.tasks(running).await[0], "running").await;
    let (waiting, task) = db.submit_one("SELECT 1").await;
    db.await_task(task, "runnable").await;
    service.signal(Signal::SIGINT);
    assert_eq!(service.wait_exit().await, 0);
    assert_eq!(db.job(running).await, "cancelled");
    assert_eq!(db.statuses(running).await, ["cancelled", "cancelled", "cancelled"]);
    assert_eq!((db.job(waiting).await.as_str(), db.task(task).await.attempt), ("scheduled", 0));
    service.restart().await;
    db.await_job(waiting, "finished").await;
    assert_eq!(db.job(running).await, "cancelled");
}

/// SPEC 6: without work both leave at once.
#[tokio::test]
async fn an_idle_service_leaves_at_once() {
    let db = Db::new().await;
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut service = Service::start(&db).await;
        let asked = std::time::Instant::now();
        service.signal(signal);
        assert_eq!(service.wait_exit().await, 0);
        assert!(asked.elapsed() < std::time::Duration::from_secs(3), "{signal}: {:?}", asked.elapsed());
    }
}

/// SPEC 6: SIGQUIT leaves at once, and recovery does the rest.
#[tokio::test]
async fn sigquit_leaves_everything_to_recovery() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let mut service = Service::start(&db).await;
    let (job, task) = db.submit_one(&wait_at(1)).await;
    db.await_task(task, "running").await;
    service.signal(Signal::SIGQUIT);
    service.wait_exit().await;
    assert_eq!(db.status(task).await, "running");
    gate.open().await;
    service.restart().await;
    db.await_job(job, "finished").await;
}

/// SPEC 6: what does not yield to a cancel request is ended, and recorded as interrupted before we leave.
#[tokio::test]
async fn sigterm_ends_what_traps_its_cancel_and_records_it() {
    let db = Db::new().await;
    let mut service = Launch::on(&db).set("shutdown.grace", "100ms").start().await;
    let stubborn = "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$";
    let (_, id) = db.submit_one(stubborn).await;
    db.await_task(id, "running").await;
    service.signal(Signal::SIGTERM);
    assert_eq!(service.wait_exit().await, 0);
    let task = db.task(id).await;
    assert_eq!((task.status.as_str(), task.interruptions, task.retry_count), ("runnable", 1, 0));
}
