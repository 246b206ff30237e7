//! Cancels in the middle of everything.

use std::time::Duration;

use serde_json::json;

use crate::support::{Db, Launch};

/// Scenario 32 with fewer trials. Citus lost four of eight such cancels.
#[tokio::test]
async fn a_cancel_while_tasks_are_being_started_leaves_no_doubt() {
    trials(15).await;
}

/// Scenario 32.
#[tokio::test]
#[ignore = "long: run by make test-slow"]
async fn fifty_cancels_while_tasks_are_being_started_leave_no_doubt() {
    trials(50).await;
}

async fn trials(count: u64) {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (trial int, task int)").await;
    let _service = Launch::on(&db).settings("[limits]\nmax_task_executors = 16\n").start().await;
    for trial in 0..count {
        let tasks: Vec<_> = (0..16)
            .map(|i| json!({ "command": format!("INSERT INTO r VALUES ({trial}, {i}); SELECT pg_sleep(0.01)") }))
            .collect();
        let job = db.submit(json!({ "task": tasks })).await;
        // Not a wait for anything: each trial hits another moment of the start.
        tokio::time::sleep(Duration::from_millis(trial * 5 % 70)).await;
        db.cancel(job).await;
        db.await_true(&format!(
            "SELECT bool_and(status IN ('done', 'cancelled')) FROM yardmaster.task WHERE job_id = {job}"
        ))
        .await;
        db.await_true(&format!(
            "SELECT state IN ('cancelled', 'finished') FROM yardmaster.job WHERE job_id = {job}"
        ))
        .await;
        let effects = format!(
            "SELECT (SELECT count(*) FROM r WHERE trial = {trial}) = count(*)
                AND (SELECT count(DISTINCT task) FROM r WHERE trial = {trial}) = count(*)
               FROM yardmaster.task WHERE job_id = {job} AND status = 'done'"
        );
        assert_eq!(db.value(&effects).await, "t", "trial {trial}: done does not equal effects");
    }
    // Nothing runs afterwards, and no ending changes.
    let ends = "SELECT md5(string_agg(task_id || status::text || finished_at, ' ' ORDER BY task_id)) FROM yardmaster.task";
    let before = db.value(ends).await;
    let (last, _) = db.submit_one("SELECT 1").await;
    db.await_job(last, "finished").await;
    let after = db
        .value(&ends.replace("FROM yardmaster.task", &format!("FROM yardmaster.task WHERE job_id <> {last}")))
        .await;
    assert_eq!(before, after);
    let cancelled = db.value("SELECT count(*) FROM yardmaster.job WHERE state = 'cancelled'").await;
    assert_ne!(cancelled, "0", "no trial was cancelled in time");
}
