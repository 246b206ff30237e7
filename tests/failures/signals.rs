//! Signals at bad moments, settings that are broken, many services at once.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::ledger;
use crate::support::{Db, Launch, Service, until};

/// Scenario 42.
#[tokio::test]
async fn a_storm_of_hangups_changes_nothing_and_loses_nothing() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let mut service = Launch::on(&db).start().await;
    let job = db.submit(json!({ "task": ledger::tasks(40, 0.02) })).await;
    for _ in 0..300 {
        service.signal(Signal::SIGHUP);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 40).await;
    assert_eq!(service.stop().await, 0);
}

/// Scenario 42.
#[tokio::test]
async fn a_service_that_never_reached_its_database_leaves_on_sigterm() {
    let mut service = Launch::at("host=/nowhere port=1 user=nobody dbname=nothing").spawn();
    service.await_log("home is not usable").await;
    assert_eq!(service.stop().await, 0);
}

/// Scenario 42.
#[tokio::test]
async fn sigterm_during_recovery_leaves_what_is_unknown_to_the_next_start() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let mut service =
        Launch::on(&db).set("limits.max_task_executors", "8").set("shutdown.grace", "200ms").start().await;
    let job = db.submit(json!({ "task": ledger::tasks(8, 1.0) })).await;
    until("all run", async || db.value(ledger::ALIVE).await == "8").await;
    service.kill9();
    service.restart().await;
    assert_eq!(service.stop().await, 0);
    service.restart().await;
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 8).await;
}

/// Scenario 42.
#[tokio::test]
async fn sigint_during_sigterm_skips_the_grace() {
    let db = Db::new().await;
    let mut service = Launch::on(&db).set("shutdown.grace", "50s").start().await;
    let (_, task) = db.submit_one("SELECT pg_sleep(60)").await;
    until("it runs", async || db.value(ledger::ALIVE).await == "1").await;
    service.signal(Signal::SIGTERM);
    service.await_log("terminating").await;
    service.signal(Signal::SIGINT);
    let began = std::time::Instant::now();
    assert_eq!(service.wait_exit().await, 0);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(db.status(task).await, "runnable");
}

/// Scenario 21.
#[tokio::test]
async fn a_broken_settings_file_changes_nothing_and_is_told_with_its_place() {
    let db = Db::new().await;
    let service = Launch::on(&db).settings("[limits]\nmax_task_executors = 3\n").start().await;
    let broken: [&[u8]; 5] = [
        b"[limits]\nmax_task_exec",
        b"[limits]\nmax_task_executors = 5\n[retry]\nmax_retries = \"\xff\xfe\"\n",
        b"[limits]\nmax_task_executers = 5\n",
        b"[limits]\nmax_task_executors = 0\n",
        b"[limits]\nmax_task_executors = 5\n[limits]\n",
    ];
    for (i, text) in broken.into_iter().enumerate() {
        std::fs::write(service.settings_file(), text).unwrap();
        service.signal(Signal::SIGHUP);
        until("it is told", async || service.log().matches("reload refused").count() == i + 1).await;
    }
    std::fs::remove_file(service.settings_file()).unwrap();
    service.signal(Signal::SIGHUP);
    until("it is told", async || service.log().matches("reload refused").count() == 6).await;
    let log = service.log();
    assert!(log.contains("Settings.toml") && log.contains("max_task_executers"), "{log}");
    assert!(!log.contains("settings reloaded"), "{log}");
    assert_eq!(
        db.value("SELECT value FROM yardmaster.published WHERE key = 'max_task_executors'").await,
        "3"
    );
}

/// Scenario 38, with fewer rounds.
#[tokio::test]
async fn five_services_started_at_once_on_an_empty_database_make_one_catalog_and_one_leader() {
    for _ in 0..3 {
        let db = Db::bare().await;
        let mut services: Vec<Service> = (0..5).map(|_| Launch::on(&db).spawn()).collect();
        until("one leads and four stand by", async || {
            let said = |text| services.iter().filter(|s| s.log().contains(text)).count();
            said("office taken") == 1 && said("standing by") == 4
        })
        .await;
        let newest = "SELECT count(*) = max(version) FROM yardmaster.schema_history";
        assert_eq!(db.value(newest).await, "t");
        for service in &mut services {
            service.kill9();
        }
    }
}

/// Scenario 22, scaled: limits that change all the time under load.
#[tokio::test]
async fn limits_that_change_all_the_time_are_kept_and_stop_nobody() {
    let db = Db::new().await;
    let limits = |n: u32| format!("[limits]\nmax_task_executors = {n}\nmax_task_executors_per_node = {n}\n");
    let service = Launch::on(&db).settings(&limits(6)).start().await;
    let nodes: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
    let tasks: Vec<_> = (0..150)
        .map(|i| json!({ "command": "SELECT pg_sleep(0.02)", "nodes_involved": nodes[..if i % 10 == 0 { 100 } else { 1 + i % 7 }] }))
        .collect();
    let job = db.submit(json!({ "task": tasks })).await;
    let mut round = 0;
    until("all are done", async || {
        round += 1;
        service.reload(&limits(1 + round % 6)).await;
        let alive: u32 = db.value(ledger::ALIVE).await.parse().unwrap();
        assert!(alive <= 6, "{alive} at once");
        db.job(job).await == "finished"
    })
    .await;
}
