//! The service dies.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::ledger;
use crate::support::{Db, Launch, Service, eventually, until};

/// Scenario 1.
#[tokio::test]
async fn orphans_of_a_killed_service_are_ended_and_run_again_one_at_a_time() {
    let db = Db::new().await;
    let launch = Launch::on(&db).set("limits.max_task_executors", "30").set("sessions.max_pending", "30");
    let mut service = launch.start().await;
    let tasks: Vec<_> = (0..30).map(|_| json!({ "command": "SELECT pg_sleep(600)" })).collect();
    let job = db.submit(json!({ "task": tasks })).await;
    until("30 run", async || db.value(ledger::ALIVE).await == "30").await;
    let old = db.value("SELECT string_agg(pid::text, ',') FROM yardmaster.task").await;

    service.kill9();
    let began = Instant::now();
    service.restart().await;
    let gone = format!(
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE pid IN ({old}) AND backend_start < clock_timestamp() - interval '3 s'
                 AND application_name ~ '/1$') = 0"
    );
    until("the old backends are gone", async || {
        // Never two of one at once.
        let twins = "SELECT count(*) FROM (SELECT split_part(application_name, '/', 2) FROM pg_stat_activity
                      WHERE datname = current_database() AND application_name ~ '^yardmaster [0-9]+/' AND state = 'active'
                      GROUP BY 1 HAVING count(*) > 1) twin";
        assert_eq!(db.value(twins).await, "0");
        db.value(&gone).await == "t" && db.value(ledger::GHOSTS).await == "0"
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(10), "recovery took {:?}", began.elapsed());
    until("all run again", async || {
        db.value("SELECT count(*) FROM yardmaster.task WHERE status = 'running' AND attempt = 2 AND interruptions = 1").await == "30"
    })
    .await;
    db.cancel(job).await;
    db.await_job(job, "cancelled").await;
}

/// Scenario 3, scaled: the same name on the same host, many times over.
#[tokio::test]
async fn a_service_that_comes_back_under_its_name_knows_its_own_old_attempts() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let mut service =
        Launch::on(&db).set("instance_name", "same").set("limits.max_task_executors", "6").start().await;
    let job = db.submit(json!({ "task": ledger::tasks(60, 0.1) })).await;
    for _ in 0..5 {
        until("something runs", async || {
            db.value(ledger::ALIVE).await != "0" || db.job(job).await == "finished"
        })
        .await;
        service.kill9();
        service.restart().await;
    }
    db.await_job(job, "finished").await;
    ledger::is_exactly(&db, 60).await;
    ledger::attempts_follow_one_another(&db).await;
}

/// Scenario 3.
#[tokio::test]
async fn of_three_services_with_one_name_one_leads() {
    let db = Db::new().await;
    let named = || Launch::on(&db).set("instance_name", "same");
    let mut first = named().start().await;
    let (second, mut third) = (named().start_standby().await, named().start_standby().await);
    assert!(!second.log().contains("office taken") && !third.log().contains("office taken"));
    assert_eq!(third.stop().await, 0, "a standby leaves in order");
    first.kill9();
    second.await_log("office taken").await;
    let (_, task) = db.submit_one("SELECT 1").await;
    db.await_task(task, "done").await;
}

/// Scenario 10: kill −9 at random moments; what runs never exceeds the limit, and the slots are free in the end.
#[tokio::test]
async fn slots_of_a_killed_service_are_free_again_and_never_lent_twice() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let mut service = Launch::on(&db).set("limits.max_task_executors", "2").start().await;
    let job = db.submit(json!({ "task": ledger::tasks(40, 0.15) })).await;
    for round in 0..8_u64 {
        let moment = Instant::now() + Duration::from_millis(60 + 37 * round);
        while Instant::now() < moment {
            assert!(db.value(ledger::ALIVE).await.parse::<u32>().unwrap() <= 2);
        }
        service.kill9();
        service.respawn();
    }
    until("the job is finished", async || {
        assert!(db.value(ledger::ALIVE).await.parse::<u32>().unwrap() <= 2);
        db.job(job).await == "finished"
    })
    .await;
    ledger::is_exactly(&db, 40).await;
}

/// Scenario 27: the grace is over, the service is killed, and one statement does not notice yet.
#[tokio::test]
async fn a_node_that_is_full_of_an_old_process_stays_full_until_it_has_ended() {
    let db = Db::new().await;
    let mut service = Launch::on(&db).set("shutdown.grace", "1s").start().await;
    let blocker = db.connect("postgres").await;
    // Not transactional: a takeover lets it run to its end.
    db.alice(
        "CREATE PROCEDURE public.slow() LANGUAGE plpgsql AS 'BEGIN COMMIT; PERFORM pg_sleep(3); COMMIT; END'",
    )
    .await;
    let tasks = json!([
        { "name": "old", "command": "CALL public.slow()", "nodes_involved": ["east"] },
        { "name": "new", "command": "SELECT pg_sleep(0.1)", "nodes_involved": ["east"] },
    ]);
    let job = db.submit(json!({ "task": tasks })).await;
    until("the procedure runs outside a transaction", async || {
        let ask = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^CALL' AND wait_event = 'PgSleep'";
        blocker.query_one(ask, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    service.kill9();
    service.restart().await;
    until("both are done", async || {
        assert!(
            db.value(ledger::ALIVE).await.parse::<u32>().unwrap() <= 1,
            "the limit of the node does not hold"
        );
        db.job(job).await == "finished"
    })
    .await;
}

/// Scenario 2, with the shortest liveness this version has: a healthy service, a long statement.
#[tokio::test]
async fn long_is_not_dead() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (_, task) = db.submit_one("SELECT pg_sleep(12)").await;
    let done = db.await_task(task, "done").await;
    assert_eq!((done.attempt, done.interruptions), (1, 0));
}

/// SPEC 7: a leader that is silent without being dead (stopped, cut off) is replaced, and does no harm when it wakes.
#[tokio::test]
async fn a_leader_that_falls_silent_is_replaced_within_15_seconds_and_stands_by_when_it_wakes() {
    let db = Db::new().await;
    ledger::make(&db).await;
    let first = Launch::on(&db).start().await;
    let second = Launch::on(&db).start_standby().await;
    let job = db.submit(json!({ "task": ledger::tasks(3, 0.3) })).await;
    until("something runs", async || db.value(ledger::ALIVE).await != "0").await;
    first.signal(Signal::SIGSTOP);
    let began = Instant::now();
    let taken =
        eventually(Duration::from_secs(25), async || second.log().contains("office taken").then_some(()))
            .await;
    let took = began.elapsed();
    first.signal(Signal::SIGCONT);
    assert!(taken.is_some(), "nobody took over from a silent leader");
    assert!(took < Duration::from_secs(20), "it took {took:?}");
    db.await_job(job, "finished").await;
    first.await_log("standing by").await;
    ledger::is_exactly(&db, 3).await;
}
