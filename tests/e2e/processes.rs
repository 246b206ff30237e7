//! Deaths of the service, and what its successor makes of them.

use std::time::{Duration, Instant};

use crate::gate::Gate;
use crate::support::{Db, Launch, Service};

/// Is at most one backend at this task?
async fn at_most_one(db: &Db, job: i64, task: i64) -> bool {
    let sql = format!(
        "SELECT count(*) <= 1 FROM pg_stat_activity
          WHERE datname = current_database() AND state = 'active' AND application_name LIKE 'yardmaster {job}/{task}/%'"
    );
    db.value(&sql).await == "t"
}

/// Scenario 22.
#[tokio::test]
async fn after_a_kill_the_task_runs_again_from_its_start() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let gate = Gate::close(&db, 1).await;
    let mut service = Service::start(&db).await;
    let (job, id) = db.submit_one(&format!("INSERT INTO r VALUES (1); {}", gate.command())).await;
    db.await_task(id, "running").await;
    service.kill9();
    service.respawn();
    db.await_true(&format!("SELECT attempt = 2 FROM yardmaster.task WHERE task_id = {id}")).await;
    db.observe(Duration::from_secs(1), async || at_most_one(&db, job, id).await, "one execution").await;
    gate.open().await;
    db.await_job(job, "finished").await;
    let task = db.task(id).await;
    assert_eq!((task.interruptions, task.retry_count, task.attempt), (1, 0, 2));
    assert_eq!(db.value("SELECT count(*) FROM r").await, "1");
    let history =
        "SELECT string_agg(attempt || ' ' || outcome, ', ' ORDER BY attempt) FROM yardmaster.attempt";
    assert_eq!(db.value(history).await, "1 interrupted, 2 done");
}

/// Scenario 22: what committed before the kill is done, not run again.
#[tokio::test]
async fn many_kills_lose_and_double_nothing() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let commands: Vec<_> = (0..150)
        .map(|i| serde_json::json!({ "command": format!("INSERT INTO r VALUES ({i}); SELECT pg_sleep(0.02)") }))
        .collect();
    let job = db.submit(serde_json::json!({ "task": commands })).await;
    let mut service = Service::start(&db).await;
    for done in [10, 50, 90, 120] {
        db.await_true(&format!("SELECT count(*) >= {done} FROM yardmaster.task WHERE status = 'done'")).await;
        service.kill9();
        service.respawn();
    }
    db.await_job(job, "finished").await;
    assert_eq!(db.value("SELECT count(*) || '/' || count(DISTINCT v) FROM r").await, "150/150");
}

/// Scenario 23.
#[tokio::test]
async fn a_standby_starts_nothing_and_takes_over_within_2_seconds() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let mut leader = Service::start(&db).await;
    let standby = Launch::on(&db).start_standby().await;
    let (job, id) = db.submit_one(&gate.command()).await;
    db.await_task(id, "running").await;
    assert!(!standby.log().contains("office taken"));
    leader.kill9();
    let killed = Instant::now();
    standby.await_log("office taken").await;
    assert!(killed.elapsed() < Duration::from_secs(2), "took over after {:?}", killed.elapsed());
    db.await_true(&format!(
        "SELECT attempt = 2 AND status = 'running' FROM yardmaster.task WHERE task_id = {id}"
    ))
    .await;
    assert!(at_most_one(&db, job, id).await);
    gate.open().await;
    db.await_job(job, "finished").await;
}

/// Scenario 23: in order, without waiting for anything.
#[tokio::test]
async fn a_leader_that_leaves_hands_over_at_once() {
    let db = Db::new().await;
    let mut leader = Service::start(&db).await;
    let standby = Launch::on(&db).start_standby().await;
    assert_eq!(leader.stop().await, 0);
    let left = Instant::now();
    standby.await_log("office taken").await;
    assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
    let (job, _) = db.submit_one("SELECT 1").await;
    db.await_job(job, "finished").await;
}

/// SPEC 7: a poll a second, and nothing that wakes itself. (A turn that notified its own listener never rested.)
#[tokio::test]
async fn an_idle_service_rests_between_polls() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, _) = db.submit_one("SELECT 1").await;
    db.await_job(job, "finished").await;
    let mut starts = std::collections::HashSet::new();
    let mut looks = 0;
    db.observe(
        Duration::from_secs(3),
        async || {
            let query = "SELECT query_start FROM pg_stat_activity
                          WHERE datname = current_database() AND application_name = 'yardmaster turns'";
            starts.insert(db.value(query).await);
            looks += 1;
            true
        },
        "always",
    )
    .await;
    assert!(looks >= 20 && starts.len() <= 8, "{} turns were seen in {looks} looks over 3 s", starts.len());
}
