//! Steering under pressure: what was told last holds, and what was told cancelled has no effect.

use serde_json::json;

use crate::ledger;
use crate::support::{Db, Launch, Service, until};

/// Scenario 37, scaled.
#[tokio::test]
async fn submit_and_cancel_in_a_tight_loop_leave_no_effect_of_a_task_told_cancelled() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let _service = Launch::on(&db).set("limits.max_task_executors", "8").start().await;
    for k in 1..=500 {
        let (job, task) = db.submit_one(&ledger::write(k, 0.0)).await;
        match k % 4 {
            0 => db.cancel(job).await,
            1 => db.alice(&format!("SELECT yardmaster.task_cancel({task})")).await,
            2 => {
                until("it left the queue", async || db.status(task).await != "blocked").await;
                db.cancel(job).await;
            }
            _ => {
                db.sql("SELECT pg_sleep(random() * 0.01)").await;
                db.alice(&format!("SELECT yardmaster.task_cancel({task})")).await;
            }
        }
    }
    let open = "SELECT count(*) FROM yardmaster.job WHERE state NOT IN ('finished', 'cancelled', 'failed')";
    until("all jobs have ended", async || db.value(open).await == "0").await;
    let wrong = "SELECT count(*) FROM yardmaster.task t WHERE (t.status = 'done') <> EXISTS
                  (SELECT FROM public.ledger l WHERE t.command = format('INSERT INTO public.ledger VALUES (%s)', l.k))";
    assert_eq!(db.value(wrong).await, "0");
    assert_eq!(
        db.value("SELECT count(*) FROM (SELECT k FROM public.ledger GROUP BY k HAVING count(*) > 1) x").await,
        "0"
    );
    assert_ne!(db.value("SELECT count(*) FROM yardmaster.task WHERE status = 'cancelled'").await, "0");
}

/// Requests that the leader finds at one look are carried out in the order they were made.
#[tokio::test]
async fn of_contrary_requests_the_last_one_holds() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let mut service = Service::start(&db).await;
    let (job, task) = db.submit_one("SELECT * FROM nowhere").await;
    db.await_task(task, "error").await;
    let paused = db.submit(json!({ "task": [{ "command": "SELECT 1" }] })).await;
    db.await_job(paused, "finished").await;
    // While nobody leads, so that one look finds them all.
    assert_eq!(service.stop().await, 0);
    let waiting = db.submit(json!({ "task": [{ "command": "SELECT pg_sleep(60)" }] })).await;
    db.alice(&format!("SELECT yardmaster.job_retry({job}); SELECT yardmaster.job_cancel({job})")).await;
    db.alice(&format!("SELECT yardmaster.job_pause({waiting}); SELECT yardmaster.job_resume({waiting}); SELECT yardmaster.job_pause({waiting})")).await;
    service.restart().await;
    until("every request is answered", async || {
        db.value("SELECT count(*) FROM yardmaster.request WHERE handled_at IS NULL").await == "0"
    })
    .await;
    db.await_job(job, "cancelled").await;
    assert_eq!(db.task(task).await.attempt, 1, "it did not run again");
    assert_eq!(db.value(&format!("SELECT paused FROM yardmaster.job WHERE job_id = {waiting}")).await, "t");
    assert_eq!(db.job(waiting).await, "scheduled");
}

/// Scenario 35.
#[tokio::test]
async fn dependants_of_two_parents_that_end_together_all_run() {
    let db = Db::new().await;
    let _service = Launch::on(&db).set("limits.max_task_executors", "8").start().await;
    let mut tasks = Vec::new();
    for pair in 0..300 {
        tasks.push(json!({ "name": format!("a{pair}"), "command": "SELECT 1" }));
        tasks.push(json!({ "name": format!("b{pair}"), "command": "SELECT 1" }));
        tasks.push(json!({ "command": "SELECT 1", "depends_on": [format!("a{pair}"), format!("b{pair}")] }));
    }
    let job = db.submit(json!({ "task": tasks })).await;
    db.await_job(job, "finished").await;
}

/// A cancel of a task that is admitted only in a later part of a large submission is not lost.
#[tokio::test]
async fn a_task_in_the_tail_of_a_large_submission_can_be_cancelled_at_once() {
    let db = Db::new().await;
    let mut service = Service::start(&db).await;
    assert_eq!(service.stop().await, 0);
    let tasks: Vec<_> = (0..10_050).map(|_| json!({ "command": "SELECT 1" })).collect();
    let job = db.submit(json!({ "task": tasks })).await;
    let last = *db.tasks(job).await.last().unwrap();
    db.alice(&format!("SELECT yardmaster.task_cancel({last})")).await;
    service.restart().await;
    let cancelled = db.await_task(last, "cancelled").await;
    assert_eq!(cancelled.attempt, 0);
    db.cancel(job).await;
    db.await_job(job, "cancelled").await;
}
