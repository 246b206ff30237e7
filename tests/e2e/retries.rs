//! Failed attempts and what follows.

use std::time::Duration;

use serde_json::json;

use crate::gate::Gate;
use crate::support::{Db, Launch, Service, Task};

/// Lets a waiting task's time come now.
async fn hurry(db: &Db, task: i64) {
    db.sql(&format!(
        "UPDATE yardmaster.task_state SET not_before = clock_timestamp() WHERE task_id = {task}"
    ))
    .await;
}

/// Waits until a task has failed so often and waits for its next attempt.
async fn await_failures(db: &Db, task: i64, failures: i32) -> Task {
    db.await_true(&format!(
        "SELECT retry_count = {failures} AND status = 'runnable' FROM yardmaster.task WHERE task_id = {task}"
    ))
    .await;
    db.task(task).await
}

/// Scenario 7.
#[tokio::test]
async fn failures_back_off_by_5_20_and_60_seconds() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, id) = db.submit_one("SELECT 1/0").await;
    for (failures, delay) in [(1, 5.0), (2, 20.0), (3, 60.0), (4, 60.0)] {
        let task = await_failures(&db, id, failures).await;
        let due = task.due_in.expect("a failed task waits for a moment");
        assert!(due <= delay && due > delay - 3.0, "{failures} failures, due in {due} s");
        assert_eq!((task.sqlstate.as_deref(), task.text()), (Some("22012"), "ERROR: division by zero"));
        assert_eq!(db.job(job).await, "running");
        hurry(&db, id).await;
    }
}

/// Scenario 8.
#[tokio::test]
async fn the_thirty_third_failure_is_the_last() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, id) = db.submit_one("SELECT 1/0").await;
    await_failures(&db, id, 1).await;
    db.sql(&format!("UPDATE yardmaster.task_state SET retry_count = 31 WHERE task_id = {id}")).await;
    hurry(&db, id).await;
    let due = await_failures(&db, id, 32).await.due_in.unwrap();
    assert!(due <= 60.0 && due > 57.0, "{due}");
    hurry(&db, id).await;
    let task = db.await_task(id, "error").await;
    assert_eq!((task.retry_count, task.due_in), (33, None));
    db.await_job(job, "failed").await;
}

/// Scenario 9.
#[tokio::test]
async fn a_success_after_a_failure_says_so_and_keeps_the_history() {
    let db = Db::new().await;
    db.alice("CREATE SEQUENCE s").await;
    let _service = Launch::on(&db).settings("[retry]\ndelays = [\"50ms\"]").start().await;
    let (job, id) = db.submit_one("SELECT 1 / (nextval('s') - 1)").await;
    db.await_job(job, "finished").await;
    let task = db.task(id).await;
    assert_eq!((task.status.as_str(), task.retry_count, task.text()), ("done", 1, "SELECT 1"));
    let history =
        "SELECT string_agg(attempt || ' ' || outcome, ', ' ORDER BY attempt) FROM yardmaster.attempt";
    assert_eq!(db.value(history).await, "1 failed, 2 done");
}

/// Scenario 12.
#[tokio::test]
async fn a_task_that_retries_holds_up_its_dependants_only() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let job = db
        .submit(json!({ "task": [
            { "name": "b", "command": "SELECT 1/0" },
            { "name": "c", "command": "SELECT 1", "depends_on": ["b"] },
            { "name": "d", "command": "SELECT 1" },
            { "name": "e", "command": "SELECT 1", "depends_on": ["d"] },
        ]}))
        .await;
    let tasks = db.tasks(job).await;
    await_failures(&db, tasks[0], 1).await;
    db.await_task(tasks[3], "done").await;
    assert_eq!(db.statuses(job).await, ["runnable", "blocked", "done", "done"]);
    assert_eq!(db.job(job).await, "running");
}

/// SPEC 3: what failed for good takes its dependants along, and nobody else.
#[tokio::test]
async fn a_failure_for_good_unschedules_its_dependants() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let _service = Service::start(&db).await;
    let job = db
        .submit(json!({ "retry": { "max_retries": 0 }, "task": [
            { "name": "a", "command": "SELECT 1/0" },
            { "name": "b", "command": "SELECT 1", "depends_on": ["a"] },
            { "name": "c", "command": "SELECT 1", "depends_on": ["b"] },
            { "name": "d", "command": gate.command() },
        ]}))
        .await;
    db.await_job(job, "failing").await;
    assert_eq!(db.statuses(job).await, ["error", "unscheduled", "unscheduled", "running"]);
    gate.open().await;
    db.await_job(job, "failed").await;
    assert_eq!(db.statuses(job).await, ["error", "unscheduled", "unscheduled", "done"]);
}

/// SPEC 3: a human must act, so no retry is spent (Citus retries a syntax error 32 times).
#[tokio::test]
async fn a_permanent_error_is_not_retried() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (_, task) = db.submit_one("SELECT * FROM nowhere").await;
    let task = db.await_task(task, "error").await;
    assert_eq!((task.attempt, task.sqlstate.as_deref()), (1, Some("42P01")));
}

/// Scenario 19.
#[tokio::test]
async fn somebody_elses_signal_to_a_backend_is_a_failure() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    for (signal, says, sqlstate) in [
        ("pg_cancel_backend", "ERROR: canceling statement due to user request", "57014"),
        ("pg_terminate_backend", "FATAL: terminating connection due to administrator command", "57P01"),
    ] {
        let (job, id) = db.submit_one("SELECT pg_sleep(20)").await;
        let pid = db.await_task(id, "running").await.pid.unwrap();
        // The claim comes before the command; a signal between the two would hit nothing.
        db.await_true(&format!("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {pid}"))
            .await;
        db.sql(&format!("SELECT {signal}({pid})")).await;
        let task = await_failures(&db, id, 1).await;
        assert!(task.text().contains(says), "{task:?}");
        assert_eq!((task.sqlstate.as_deref(), task.interruptions), (Some(sqlstate), 0));
        assert_eq!(db.job(job).await, "running");
        db.cancel(job).await;
        db.await_job(job, "cancelled").await;
    }
}

/// SPEC 3: kept by us, whatever the command sets.
#[tokio::test]
async fn a_timeout_is_kept_by_us() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let job = db
        .submit(json!({ "retry": { "max_retries": 0 }, "task": [
            { "command": "SET statement_timeout = 0; SELECT pg_sleep(60)", "timeout": "300ms" },
        ]}))
        .await;
    let begun = std::time::Instant::now();
    db.await_job(job, "failed").await;
    assert!(begun.elapsed() < Duration::from_secs(10));
    let task = db.task(db.tasks(job).await[0]).await;
    assert_eq!(task.sqlstate.as_deref(), Some("57014"));
    assert!(task.text().contains("longer than its timeout of 300ms"), "{task:?}");
}

/// Whoever has mended the cause need not wait for the back-off.
#[tokio::test]
async fn a_retry_that_is_asked_for_does_not_wait_for_the_back_off() {
    let db = Db::new().await;
    let _service = Launch::on(&db).set("retry.delays", "[\"1h\"]").start().await;
    let command = "SELECT 1/count(*) FROM pg_class WHERE relname = 'mended'";
    let (job, of_job) = db.submit_one(command).await;
    let (_, alone) = db.submit_one(command).await;
    await_failures(&db, of_job, 1).await;
    await_failures(&db, alone, 1).await;
    db.alice("CREATE TABLE mended ()").await;
    db.alice(&format!("SELECT yardmaster.job_retry({job}), yardmaster.task_retry({alone})")).await;
    for task in [of_job, alone] {
        let done = db.await_task(task, "done").await;
        assert_eq!((done.attempt, done.retry_count), (2, 1), "the failure is not forgotten");
    }
    db.await_job(job, "finished").await;
}

/// A job that ran out of time has all of it again.
#[tokio::test]
async fn a_job_that_is_retried_has_its_whole_timeout_again() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let _service = Service::start(&db).await;
    let job =
        db.submit(json!({ "timeout": "1s", "task": [{ "name": "t", "command": gate.command() }] })).await;
    for attempt in 1..=3 {
        // Its timeout cancels it, each time as the first.
        let ended = format!(
            "SELECT j.state = 'cancelled' AND t.status = 'cancelled' AND t.attempt = {attempt}
               FROM yardmaster.job j JOIN yardmaster.task t USING (job_id) WHERE job_id = {job}"
        );
        db.await_true(&ended).await;
        db.alice(&format!("SELECT yardmaster.job_retry({job})")).await;
    }
}
