//! Cancelling jobs and tasks.

use std::time::Duration;

use serde_json::json;

use crate::gate::Gate;
use crate::support::{Db, Service, eventually};

/// A task that takes half a second to end after a cancel request, so that `cancelling` can be seen. PostgreSQL signals
/// a backend and its process group, so that one request can interrupt twice.
const STUBBORN: &str = "DO $$DECLARE until timestamptz; BEGIN
    INSERT INTO r VALUES (1);
    PERFORM pg_sleep(60);
EXCEPTION WHEN query_canceled THEN
    until := clock_timestamp() + interval '500 ms';
    WHILE clock_timestamp() < until LOOP
        BEGIN PERFORM pg_sleep(0.05); EXCEPTION WHEN query_canceled THEN NULL; END;
    END LOOP;
    RAISE;
END$$";

/// Scenario 3.
#[tokio::test]
async fn a_cancel_reaches_every_task_of_the_job() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let _service = Service::start(&db).await;
    let mut best = Duration::MAX;
    for _ in 0..4 {
        let job = db
            .submit(json!({ "task": [
                { "name": "t0", "command": "SELECT 1" },
                { "name": "t1", "command": STUBBORN },
                { "name": "t2", "command": "SELECT 1", "depends_on": ["t1"] },
            ]}))
            .await;
        let [t0, t1, t2] = db.tasks(job).await[..] else { panic!("three tasks") };
        db.await_task(t0, "done").await;
        db.await_task(t1, "running").await;
        db.await_true("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()").await;
        db.cancel(job).await;
        let committed = std::time::Instant::now();
        let seen = eventually(Duration::from_secs(5), async || {
            (db.statuses(job).await == ["done", "cancelling", "cancelled"]).then_some(())
        });
        seen.await.expect("the job is seen cancelling");
        best = best.min(committed.elapsed());
        assert_eq!(db.job(job).await, "cancelling");
        let ended = db.await_task(t1, "cancelled").await;
        assert!(ended.text().contains("ERROR: canceling statement due to user request"), "{ended:?}");
        db.await_job(job, "cancelled").await;
        assert_eq!((db.status(t0).await.as_str(), db.status(t2).await.as_str()), ("done", "cancelled"));
        assert_eq!(db.value("SELECT count(*) FROM r").await, "0");
    }
    assert!(best < Duration::from_millis(100), "a cancel took {best:?} to be carried out");
}

/// Scenario 3: within a second for a statement that hears the request.
#[tokio::test]
async fn a_cancelled_statement_ends_at_once() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, task) = db.submit_one("SELECT pg_sleep(60)").await;
    let pid = db.await_task(task, "running").await.pid.unwrap();
    db.await_true(&format!("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {pid}")).await;
    let asked = std::time::Instant::now();
    db.cancel(job).await;
    let task = db.await_task(task, "cancelled").await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert!(task.text().contains("ERROR: canceling statement due to user request"), "{task:?}");
    assert_eq!((task.retry_count, task.pid), (0, None));
    db.await_job(job, "cancelled").await;
}

/// SPEC 3: after `cancel.grace` its backend is ended.
#[tokio::test]
async fn a_task_that_traps_its_cancel_is_ended_after_the_grace() {
    let db = Db::new().await;
    let _service = crate::support::Launch::on(&db).settings("[cancel]\ngrace = \"300ms\"").start().await;
    let trap = "DO $$BEGIN LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END$$";
    let (job, task) = db.submit_one(trap).await;
    db.await_task(task, "running").await;
    db.cancel(job).await;
    db.await_job(job, "cancelled").await;
    db.await_true("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database())")
        .await;
}

/// Scenario 4.
#[tokio::test]
async fn a_job_that_has_not_started_is_cancelled_whole() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let later = "2100-01-01T00:00:00Z";
    let job = db
        .submit(json!({ "task": [
            { "name": "a", "command": "SELECT 1", "not_before": later },
            { "name": "b", "command": "SELECT 1", "depends_on": ["a"] },
        ]}))
        .await;
    db.cancel(job).await;
    db.await_job(job, "cancelled").await;
    assert_eq!(db.statuses(job).await, ["cancelled", "cancelled"]);
    let times = format!(
        "SELECT started_at IS NULL AND finished_at IS NOT NULL FROM yardmaster.job WHERE job_id = {job}"
    );
    assert_eq!(db.value(&times).await, "t");
}

/// Scenario 5.
#[tokio::test]
async fn a_task_in_its_back_off_is_cancelled_and_keeps_its_error() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, task) = db.submit_one("SELECT 1/0").await;
    db.await_true(&format!("SELECT retry_count = 1 FROM yardmaster.task WHERE task_id = {task}")).await;
    assert_eq!(db.status(task).await, "runnable");
    db.cancel(job).await;
    let task = db.await_task(task, "cancelled").await;
    assert!(task.text().contains("division by zero"), "{task:?}");
    assert_eq!((task.sqlstate.as_deref(), task.retry_count), (Some("22012"), 1));
    db.await_job(job, "cancelled").await;
}

/// Scenario 6.
#[tokio::test]
async fn cancelling_what_has_ended_changes_nothing() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (finished, _) = db.submit_one("SELECT 1").await;
    let (failed, _) = db.submit_one("SELECT * FROM nowhere").await;
    let (cancelled, task) = db.submit_one("SELECT pg_sleep(60)").await;
    db.await_task(task, "running").await;
    // Twice in a row, in one transaction even (Citus un-cancels).
    db.alice(&format!("SELECT yardmaster.job_cancel({cancelled}), yardmaster.job_cancel({cancelled})")).await;
    let states = [(finished, "finished"), (failed, "failed"), (cancelled, "cancelled")];
    for (job, state) in states {
        db.await_job(job, state).await;
    }
    let ends = "SELECT string_agg(job_id || ' ' || state || ' ' || finished_at, ', ' ORDER BY job_id) FROM yardmaster.job";
    let before = db.value(ends).await;
    for (job, _) in states {
        db.cancel(job).await;
    }
    db.await_true("SELECT count(*) = 5 AND bool_and(handled_at IS NOT NULL) FROM yardmaster.request").await;
    assert_eq!(db.value(ends).await, before);
    let told = format!("SELECT outcome FROM yardmaster.request WHERE job_id = {finished}");
    assert_eq!(db.value(&told).await, format!("job {finished} is finished"));
}

/// Scenario 6.
#[tokio::test]
async fn an_unknown_id_is_an_error_that_names_it() {
    let db = Db::new().await;
    for (call, what) in [
        ("job_cancel(987654)", "job 987654"),
        ("job_wait(987654)", "job 987654"),
        ("task_wait(987654)", "task 987654"),
        ("task_cancel(987654)", "task 987654"),
    ] {
        let refused = db.alice.batch_execute(&format!("SELECT yardmaster.{call}")).await.unwrap_err();
        assert_eq!(refused.as_db_error().unwrap().message(), format!("{what} does not exist"));
    }
}

/// SPEC 3: dependants of a task cancelled alone are unscheduled; the job has failed.
#[tokio::test]
async fn a_task_cancelled_alone_takes_its_dependants_along() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let _service = Service::start(&db).await;
    let job = db
        .submit(json!({ "task": [
            { "name": "a", "command": gate.command() },
            { "name": "b", "command": "SELECT 1", "depends_on": ["a"] },
            { "name": "c", "command": "SELECT 1", "depends_on": ["b"] },
            { "name": "d", "command": "SELECT 1" },
        ]}))
        .await;
    let tasks = db.tasks(job).await;
    db.await_task(tasks[0], "running").await;
    db.alice(&format!("SELECT yardmaster.task_cancel({})", tasks[0])).await;
    db.await_job(job, "failed").await;
    assert_eq!(db.statuses(job).await, ["cancelled", "unscheduled", "unscheduled", "done"]);
    // And all of it runs again when asked.
    gate.open().await;
    db.alice(&format!("SELECT yardmaster.job_retry({job})")).await;
    db.await_job(job, "finished").await;
}
