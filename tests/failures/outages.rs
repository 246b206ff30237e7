//! PostgreSQL dies, starves or refuses.

use std::time::Duration;

use serde_json::json;
use yardmaster::cluster::StopMode;

use crate::ledger;
use crate::support::{Db, Launch, own, until};

/// A connection to the database as it is now.
async fn reconnect(db: &mut Db) {
    db.admin = db.connect("postgres").await;
    db.alice = db.connect("alice").await;
}

/// Scenario 4.
#[tokio::test]
async fn the_same_process_survives_five_deaths_of_postgresql() {
    let (mut server, private) = own(&[]).await;
    let mut db = Db::on(private).await;
    ledger::make(&db).await;
    let service =
        Launch::on(&db).set("limits.max_task_executors", "4").set("log.level", "info").start().await;
    let job = db.submit(json!({ "task": ledger::tasks(120, 0.1) })).await;
    for _ in 0..5 {
        until("something runs", async || {
            db.value(ledger::ALIVE).await != "0" || db.job(job).await == "finished"
        })
        .await;
        server.restart(StopMode::Immediate).await.unwrap();
        reconnect(&mut db).await;
        let (_, task) = db.submit_one("SELECT 1").await;
        let began = std::time::Instant::now();
        until("a new attempt started", async || {
            db.task(task).await.attempt > 0 || db.value(ledger::ALIVE).await != "0"
        })
        .await;
        assert!(began.elapsed() < Duration::from_secs(8), "the first start took {:?}", began.elapsed());
    }
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 120).await;
    ledger::attempts_follow_one_another(&db).await;
    let log = service.log();
    assert!(log.lines().count() < 50 + 120, "{log}");
    assert!(log.matches("home is not usable").count() <= 5, "an outage is told once\n{log}");
    assert_eq!(
        db.value("SELECT sum(retry_count) FROM yardmaster.task").await,
        "0",
        "an outage spends no retries"
    );
}

/// Scenario 5, scaled.
#[tokio::test]
async fn an_interrupted_recovery_is_repeated() {
    let (mut server, private) = own(&[("max_connections", "60")]).await;
    let mut db = Db::on(private).await;
    ledger::make(&db).await;
    let launch = Launch::on(&db).set("limits.max_task_executors", "30").set("sessions.max_pending", "30");
    let mut service = launch.start().await;
    let job = db.submit(json!({ "task": ledger::tasks(30, 2.0) })).await;
    until("all run", async || db.value(ledger::ALIVE).await == "30").await;
    service.kill9();
    service.respawn();
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.restart(StopMode::Immediate).await.unwrap();
    reconnect(&mut db).await;
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 30).await;
}

/// Scenario 9, scaled.
#[tokio::test]
async fn a_service_that_finds_no_database_waits_for_it() {
    let (server, private) = own(&[]).await;
    let db = Db::on(private).await;
    let folder = private.folder.clone();
    server.stop(StopMode::Fast).await.unwrap();
    let service = Launch::on(&db).spawn();
    service.await_log("home is not usable").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let binaries = yardmaster::cluster::Binaries::find().unwrap();
    let mut options = yardmaster::cluster::ClusterOptions::new(&folder);
    options.fsync = false;
    let _server = yardmaster::cluster::Cluster::start(&binaries, options).await.unwrap();
    service.await_log("office taken").await;
    assert_eq!(service.log().matches("home is not usable").count(), 1, "{}", service.log());
    let mut db = db;
    reconnect(&mut db).await;
    let (_, task) = db.submit_one("SELECT 1").await;
    db.await_task(task, "done").await;
}

/// Scenario 12.
#[tokio::test]
async fn a_server_without_free_connections_is_waited_for_and_costs_no_retry() {
    let (_server, private) = own(&[("max_connections", "40"), ("superuser_reserved_connections", "3")]).await;
    let db = Db::on(private).await;
    ledger::make(&db).await;
    let launch = Launch::on(&db).set("limits.max_task_executors", "16").set("sessions.max_pending", "16");
    let service = launch.start().await;
    let mut idle = Vec::new();
    while idle.len() < 26 {
        idle.push(db.connect("alice").await);
    }
    let job = db.submit(json!({ "task": ledger::tasks(50, 0.1) })).await;
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 50).await;
    let spent = db.value("SELECT sum(retry_count) + sum(interruptions) FROM yardmaster.task").await;
    assert_eq!(spent, "0");
    let warnings = service.log().matches("no session could be opened").count();
    assert!(warnings >= 1, "the server was never full, so nothing was tried");
    assert!(warnings <= 3, "{}", service.log());
}

/// Scenario 6, the simpler half.
#[tokio::test]
async fn a_read_only_home_is_waited_for_and_resumes_by_itself() {
    let (_server, private) = own(&[]).await;
    let db = Db::on(private).await;
    let service = Launch::on(&db).set("log.level", "info").start().await;
    let read_only = async |on: &str| {
        db.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {on}")).await;
        db.sql("SELECT pg_reload_conf()").await;
    };
    let alice = db.connect("alice").await;
    read_only("on").await;
    until("the setting is in effect", async || {
        alice.query_one("SHOW default_transaction_read_only", &[]).await.unwrap().get::<_, String>(0) == "on"
    })
    .await;
    alice.batch_execute("BEGIN READ WRITE; SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"SELECT 1\"}]}'); COMMIT").await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    read_only("off").await;
    until("the task is done", async || db.value("SELECT status FROM yardmaster.task").await == "done").await;
    let log = service.log();
    let complaints = log.lines().filter(|l| l.contains("WARN") || l.contains("ERROR")).count();
    assert!((1..=3).contains(&complaints), "one warning, not {complaints}\n{log}");
}
