//! Connections are ended under a living service.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::ledger;
use crate::support::{Db, Launch, Service, until};

const SESSIONS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'yard_service'";
const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'yardmaster listen'";

/// Scenario 7, scaled.
#[tokio::test]
async fn a_storm_that_ends_every_session_each_second_loses_and_doubles_nothing() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let launch = Launch::on(&db).set("limits.max_task_executors", "4").set("retry.delays", "10ms");
    let _service = launch.start().await;
    let normal = db.value(SESSIONS).await;
    let job = db.submit(json!({ "task": ledger::tasks(300, 0.01) })).await;
    for _ in 0..6 {
        db.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
                   AND (usename = 'yard_service' OR application_name ^@ 'yardmaster')",
        )
        .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 300).await;
    until("the sessions are as many as before", async || db.value(SESSIONS).await == normal).await;
    assert_eq!(db.value(LISTENERS).await, "1");
}

/// Scenario 8, scaled.
#[tokio::test]
async fn a_killed_listener_is_replaced_and_loses_no_submission() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    until("somebody listens", async || db.value(LISTENERS).await == "1").await;
    let normal = db.value(SESSIONS).await;
    for _ in 0..15 {
        db.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'yardmaster listen'").await;
        let began = Instant::now();
        let (_, task) = db.submit_one("SELECT 1").await;
        db.await_task(task, "done").await;
        assert!(began.elapsed() < Duration::from_secs(3), "it started after {:?}", began.elapsed());
    }
    until("the sessions are as many as before", async || db.value(SESSIONS).await == normal).await;
    assert_eq!(db.value(LISTENERS).await, "1");
}
