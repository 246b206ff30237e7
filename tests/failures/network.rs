//! The network between the service and PostgreSQL fails in ways that no error tells.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::ledger;
use crate::support::{Db, Launch, Proxy, Weather, until};

const LISTENER: &str = "SELECT coalesce(max(pid), 0) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'yardmaster listen'";
const HOLDERS: &str = "SELECT count(*) FROM pg_locks WHERE relation = 'yardmaster.leadership'::regclass AND granted
    AND mode = 'ExclusiveLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Scenario 31.
#[tokio::test]
async fn a_listener_that_goes_silent_is_replaced_and_the_poll_bridges_the_gap() {
    let db = Db::new().await;
    let network = Proxy::before(&db);
    let service = Launch::at(&network.url("yard_service", &db.name)).start().await;
    until("somebody listens", async || db.value(LISTENER).await != "0").await;
    let old = db.value(LISTENER).await;
    network.set("yardmaster listen", Weather::Silent);
    let began = Instant::now();
    let (_, task) = db.submit_one("SELECT 1").await;
    db.await_task(task, "done").await;
    assert!(began.elapsed() < Duration::from_secs(4), "it started after {:?}", began.elapsed());
    service.await_log("cannot listen").await;
    network.set("yardmaster listen", Weather::Fair);
    assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());
    until("another listens", async || !["0", old.as_str()].contains(&db.value(LISTENER).await.as_str()))
        .await;
}

/// Scenario 28: the connection for renewals is cut, again and again, with a second service up.
#[tokio::test]
async fn a_renewal_that_fails_leaves_one_leader_and_doubles_nothing() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let network = Proxy::before(&db);
    let launch = || Launch::at(&network.url("yard_service", &db.name));
    let (_first, _second) = (launch().start().await, launch().start_standby().await);
    let job = db.submit(json!({ "task": ledger::tasks(60, 0.05) })).await;
    for _ in 0..3 {
        network.set("yardmaster control", Weather::CutAfter(0));
        tokio::time::sleep(Duration::from_millis(700)).await;
        network.set("yardmaster control", Weather::Fair);
        let began = Instant::now();
        until("one leads", async || db.value(HOLDERS).await == "1").await;
        assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    }
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 60).await;
    ledger::attempts_follow_one_another(&db).await;
}

/// Scenario 29.
#[tokio::test]
async fn a_late_answer_to_the_lock_request_leaves_no_lock_behind() {
    let db = Db::new().await;
    let network = Proxy::before(&db);
    network.set("yardmaster lock", Weather::Slow(Duration::from_millis(1500)));
    let mut service = Launch::at(&network.url("yard_service", &db.name)).start().await;
    let (_, task) = db.submit_one("SELECT 1").await;
    db.await_task(task, "done").await;
    assert_eq!(db.value(HOLDERS).await, "1");
    assert_eq!(service.stop().await, 0);
    until("the lock is free", async || db.value(HOLDERS).await == "0").await;
}

/// SPEC 7: every connection falls silent for longer than a leader may go without renewing, and then goes on.
#[tokio::test]
async fn a_network_that_falls_silent_and_comes_back_loses_and_doubles_nothing() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let network = Proxy::before(&db);
    let _service = Launch::at(&network.url("yard_service", &db.name))
        .set("limits.max_task_executors", "4")
        .start()
        .await;
    let job = db.submit(json!({ "task": ledger::tasks(80, 0.05) })).await;
    until("something runs", async || db.value(ledger::ALIVE).await != "0").await;
    network.set("", Weather::Silent);
    tokio::time::sleep(Duration::from_secs(9)).await;
    network.set("", Weather::Fair);
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 80).await;
    ledger::attempts_follow_one_another(&db).await;
}

/// SPEC 7: the network may cut at any byte.
#[tokio::test]
async fn connections_that_are_cut_at_any_byte_lose_and_double_nothing() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let network = Proxy::before(&db);
    let _service = Launch::at(&network.url("yard_service", &db.name))
        .set("limits.max_task_executors", "4")
        .start()
        .await;
    let job = db.submit(json!({ "task": ledger::tasks(400, 0.0) })).await;
    let mut bytes = 331;
    for _ in 0..40 {
        // Owners' sessions lose the answer somewhere: to BEGIN, to the command, to the record, to COMMIT.
        network.set("yardmaster", Weather::Fair);
        network.set("", Weather::CutAfter(bytes));
        network.set(
            "yardmaster turns",
            if bytes % 3 == 0 { Weather::CutAfter(bytes * 7) } else { Weather::Fair },
        );
        bytes = 331 + (bytes * 7 + 97) % 2500;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    network.set("", Weather::Fair);
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 400).await;
    ledger::attempts_follow_one_another(&db).await;
    assert!(*network.connections.lock().unwrap() > 40, "hardly anything was cut");
}
