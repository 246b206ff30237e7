//! Short tasks are prefetched: several claimed for one session, to run one after another.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gate::Gate;
use crate::support::{Db, Launch, eventually};

fn many(n: usize, command: &str) -> Vec<Value> {
    vec![json!({ "command": command }); n]
}

/// Never more are shown as running, or run, than may; nothing of the prefetching is left to be seen.
#[tokio::test]
async fn a_drain_prefetches_and_exceeds_no_limit() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let _service = Launch::on(&db).set("limits.max_task_executors", "2").start().await;
    let job = db.submit(json!({ "task": many(1500, "INSERT INTO r VALUES (1)") })).await;
    let mut prefetched = false;
    let looking = eventually(Duration::from_secs(60), async || {
        let shown = db.value("SELECT count(*) FROM yardmaster.task WHERE status = 'running'").await;
        assert!(shown.parse::<u32>().unwrap() <= 2, "{shown} are shown as running");
        let run = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'alice' AND state = 'active'
                      AND application_name LIKE 'yardmaster%' AND datname = current_database()";
        assert!(db.value(run).await.parse::<u32>().unwrap() <= 2);
        prefetched |= db.value("SELECT count(*) FROM yardmaster.task_state WHERE prefetched").await != "0";
        (db.job(job).await == "finished").then_some(())
    });
    looking.await.expect("the job is drained");
    assert!(prefetched, "a crowd of short tasks is prefetched");
    assert_eq!(db.value("SELECT count(*) FROM r").await, "1500");
    assert_eq!(
        db.value("SELECT count(*) FROM yardmaster.attempt WHERE attempt > 1 OR outcome <> 'done'").await,
        "0"
    );
    assert_eq!(db.value("SELECT count(*) FROM yardmaster.attempt WHERE started_at > ended_at").await, "0");
    assert_eq!(db.value("SELECT count(*) FROM yardmaster.task_state WHERE prefetched").await, "0");
}

/// Whoever stands behind a task that takes long is started elsewhere; its own history does not tell.
#[tokio::test]
async fn a_long_task_holds_up_nobody_behind_it() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let _service = Launch::on(&db).set("limits.max_task_executors", "2").start().await;
    let mut tasks = many(100, "SELECT 1");
    tasks.push(json!({ "command": gate.command() }));
    tasks.extend(many(100, "SELECT 1"));
    let job = db.submit(json!({ "task": tasks })).await;
    gate.await_waiters(&db, 1).await;
    db.await_true(&format!(
        "SELECT count(*) = 200 FROM yardmaster.task WHERE job_id = {job} AND status = 'done'"
    ))
    .await;
    // However it was claimed, it is shown as what it is.
    assert_eq!(db.value("SELECT count(*) FROM yardmaster.task WHERE status = 'running'").await, "1");
    gate.open().await;
    db.await_job(job, "finished").await;
    assert_eq!(
        db.value("SELECT count(*) FROM yardmaster.attempt WHERE attempt > 1 OR outcome <> 'done'").await,
        "0"
    );
    assert_eq!(db.value("SELECT sum(interruptions) FROM yardmaster.task").await, "0");
}

/// Once a pause is answered nothing of the job starts, also nothing that was claimed before.
#[tokio::test]
async fn a_pause_gives_back_what_was_prefetched() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (at timestamptz)").await;
    let _service = Launch::on(&db).set("limits.max_task_executors", "2").start().await;
    let job = db.submit(json!({ "task": many(3000, "INSERT INTO r VALUES (clock_timestamp())") })).await;
    db.await_true("SELECT count(*) > 0 FROM yardmaster.task_state WHERE prefetched").await;
    db.alice(&format!("SELECT yardmaster.job_pause({job})")).await;
    db.await_true("SELECT count(*) = 0 FROM yardmaster.task_state WHERE status = 'running'").await;
    let before = db.value("SELECT count(*) FROM r").await;
    assert_ne!(before, "3000", "the pause came too late to show anything");
    db.alice("SELECT pg_sleep(0.3)").await;
    assert_eq!(db.value("SELECT count(*) FROM r").await, before);
    db.alice(&format!("SELECT yardmaster.job_resume({job})")).await;
    db.await_job(job, "finished").await;
    assert_eq!(db.value("SELECT count(*) FROM r").await, "3000");
}

/// A crash while much is prefetched: each task once.
#[tokio::test]
async fn a_crash_of_the_service_loses_and_doubles_nothing_prefetched() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let mut service = Launch::on(&db).set("limits.max_task_executors", "4").start().await;
    let tasks: Vec<Value> =
        (0..2000).map(|i| json!({ "command": format!("INSERT INTO r VALUES ({i})") })).collect();
    let job = db.submit(json!({ "task": tasks })).await;
    for _ in 0..3 {
        db.await_true("SELECT count(*) > 4 FROM yardmaster.task_state WHERE prefetched").await;
        service.kill9();
        service.restart().await;
    }
    db.await_job(job, "finished").await;
    assert_eq!(db.value("SELECT count(*) FROM r").await, "2000");
    assert_eq!(db.value("SELECT count(DISTINCT v) FROM r").await, "2000");
}
