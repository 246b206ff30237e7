//! One job from the insert to the end.

use serde_json::json;

use crate::gate::Gate;
use crate::support::{Db, Service};

/// Scenario 1.
#[tokio::test]
async fn a_task_runs_once_and_says_what_postgresql_said() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let (job, task) = db.submit_one("INSERT INTO r VALUES (1)").await;
    assert_eq!(db.job(job).await, "scheduled");
    let mut service = Service::start(&db).await;
    db.await_job(job, "finished").await;
    let task = db.task(task).await;
    assert_eq!((task.status.as_str(), task.text(), task.pid), ("done", "INSERT 0 1", None));
    assert!(task.started_at <= task.finished_at && task.started_at.is_some());
    assert_eq!(db.value("SELECT count(*) FROM r").await, "1");
    assert_eq!(service.stop().await, 0);
}

/// Scenario 2.
#[tokio::test]
async fn a_running_task_shows_its_backend() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let _service = Service::start(&db).await;
    let (job, id) = db.submit_one(&gate.command()).await;
    let task = db.await_task(id, "running").await;
    assert_eq!(task.message, None);
    assert_eq!(db.job(job).await, "running");
    let pid = task.pid.expect("a running task has a backend");
    // The claim comes first, the name with the command.
    db.await_true(&format!(
        "SELECT application_name = 'yardmaster {job}/{id}/1' AND usename = 'alice' FROM pg_stat_activity WHERE pid = {pid}"
    ))
    .await;
    gate.open().await;
    db.await_job(job, "finished").await;
}

/// Scenario 1, by whoever can write SQL.
#[tokio::test]
async fn a_plain_insert_by_psql_is_enough() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let _service = Service::start(&db).await;
    let told = db
        .psql(
            "alice",
            "WITH j AS (INSERT INTO yardmaster.job (description) VALUES ('by hand') RETURNING job_id)
             INSERT INTO yardmaster.task (job_id, command) SELECT job_id, 'INSERT INTO r VALUES (7)' FROM j
             RETURNING task_id",
        )
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let task: i64 = String::from_utf8(told.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(db.await_task(task, "done").await.text(), "INSERT 0 1");
    assert_eq!(db.value("SELECT sum(v) FROM r").await, "7");
}

/// Nothing starts before its transaction commits, and nothing is left if it rolls back.
#[tokio::test]
async fn a_job_belongs_to_its_transaction() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let mut alice = db.connect("alice").await;
    let submit = "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"SELECT 1\"}]}')";
    let open = alice.transaction().await.unwrap();
    let kept: i64 = open.query_one(submit, &[]).await.unwrap().get(0);
    // A job that is committed later runs first.
    let (other, _) = db.submit_one("SELECT 2").await;
    db.await_job(other, "finished").await;
    assert_eq!(db.value(&format!("SELECT count(*) FROM yardmaster.job WHERE job_id = {kept}")).await, "0");
    open.commit().await.unwrap();
    db.await_job(kept, "finished").await;
    let undone = alice.transaction().await.unwrap();
    let dropped: i64 = undone.query_one(submit, &[]).await.unwrap().get(0);
    undone.rollback().await.unwrap();
    let (after, _) = db.submit_one("SELECT 3").await;
    db.await_job(after, "finished").await;
    assert_eq!(db.value(&format!("SELECT count(*) FROM yardmaster.job WHERE job_id = {dropped}")).await, "0");
}

/// Scenario 31.
#[tokio::test]
async fn a_long_task_does_not_hold_up_another_job() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let _service = Service::start(&db).await;
    let (long, long_task) = db.submit_one(&gate.command()).await;
    db.await_task(long_task, "running").await;
    let (short, _) = db.submit_one("SELECT 1").await;
    db.await_job(short, "finished").await;
    assert_eq!(db.status(long_task).await, "running");
    gate.open().await;
    db.await_job(long, "finished").await;
}

/// SPEC 3: Citus hangs here.
#[tokio::test]
async fn a_job_without_tasks_is_finished_when_it_is_seen() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let job = db.submit(json!({ "description": "nothing to do", "task": [] })).await;
    db.await_job(job, "finished").await;
}

/// Scenario 30.
#[tokio::test]
async fn a_finished_job_takes_another_task_and_finishes_again() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, _) = db.submit_one("SELECT 1").await;
    db.await_job(job, "finished").await;
    let finished = format!("SELECT finished_at FROM yardmaster.job WHERE job_id = {job}");
    let first = db.value(&finished).await;
    let gate = Gate::close(&db, 1).await;
    let add = format!("INSERT INTO yardmaster.task (job_id, command) VALUES ({job}, '{}')", gate.command());
    db.alice(&add).await;
    db.await_job(job, "running").await;
    assert_eq!(db.value(&finished).await, "");
    gate.open().await;
    db.await_job(job, "finished").await;
    assert!(db.value(&format!("SELECT ({finished}) > '{first}'::timestamptz")).await == "t");
}

/// Scenario 30.
#[tokio::test]
async fn a_cancelled_or_failed_job_takes_no_more_tasks() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (failed, _) = db.submit_one("SELECT * FROM nowhere").await;
    db.await_job(failed, "failed").await;
    let cancelled =
        db.submit(json!({ "task": [{ "command": "SELECT 1", "not_before": "2100-01-01T00:00:00Z" }] })).await;
    db.cancel(cancelled).await;
    db.await_job(cancelled, "cancelled").await;
    for (job, state) in [(failed, "failed"), (cancelled, "cancelled")] {
        let add = format!("INSERT INTO yardmaster.task (job_id, command) VALUES ({job}, 'SELECT 1')");
        let refused = db.alice.batch_execute(&add).await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert!(refused.message().contains(&format!("job {job} is {state}")), "{refused}");
    }
}
