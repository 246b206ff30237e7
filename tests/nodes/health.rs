//! Nodes that are drained, down, full or slow.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yardmaster::cluster::{Cluster, StopMode};

use crate::node::{ALIVE, NodeDb, section};
use crate::support::{Db, Launch, Proxy, Weather, own, until, yardmaster};

async fn why(db: &Db, task: i64) -> String {
    db.value(&format!("SELECT yardmaster.task_why({task})")).await
}

async fn state(db: &Db, node: &str) -> String {
    db.value(&format!("SELECT state FROM yardmaster.node WHERE name = '{node}'")).await
}

fn on(node: &str, command: &str) -> Value {
    json!({ "task": [{ "command": command, "node": node }] })
}

/// The longest of ten tasks there, from commit to done.
async fn latency(db: &Db, node: &str) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let began = Instant::now();
        let job = db.submit(on(node, "SELECT 1")).await;
        db.await_job(job, "finished").await;
        longest = longest.max(began.elapsed());
    }
    longest
}

/// Scenario 17; with candidates in `candidates.rs`.
#[tokio::test]
async fn scenario_17_a_drained_node_ends_what_it_has_and_starts_nothing() {
    let db = Db::new().await;
    let node = NodeDb::new(0).await;
    db.sql("CREATE ROLE boss LOGIN IN ROLE yardmaster_admin").await;
    let mut service = Launch::on(&db).settings(&node.settings("n1")).start().await;
    let cli = |arguments: &[&str]| {
        let output = yardmaster(arguments).env("DATABASE_URL", db.url("boss")).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let running = db.submit(on("n1", "SELECT pg_sleep(1)")).await;
    until("it runs", async || node.value(ALIVE).await == "1").await;
    let refused = db.alice.query("SELECT yardmaster.node_drain('n1')", &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42501");
    let unknown = cli(&["node", "drain", "n9"]);
    assert_eq!(unknown.0, 2, "{}", unknown.1);
    assert_eq!(cli(&["node", "drain", "n1"]), (0, "drain node n1: node n1 is draining\n".to_owned()));
    let waiting = db.submit(on("n1", "SELECT 2")).await;
    let task = db.tasks(waiting).await[0];
    db.await_task(task, "runnable").await;
    db.await_job(running, "finished").await;
    let told = why(&db, task).await;
    assert!(told.starts_with("node n1 is draining since ") && told.ends_with(": drained by boss"), "{told}");
    // It stays so over a restart, and over being declared anew.
    service.kill9();
    service.restart().await;
    service.reload("").await;
    service.reload(&node.settings("n1")).await;
    until("it is declared again", async || state(&db, "n1").await == "draining").await;
    let listed: Value = serde_json::from_str(&cli(&["node", "list", "-o", "json"]).1).unwrap();
    assert_eq!((&listed[0]["state"], &listed[0]["slots_used"]), (&json!("draining"), &json!(0)));
    assert_eq!(db.statuses(waiting).await, ["runnable"]);
    assert_eq!(cli(&["node", "resume", "n1"]), (0, "resume node n1: node n1 is active\n".to_owned()));
    db.await_job(waiting, "finished").await;
}

/// Scenario 18.
#[tokio::test]
async fn scenario_18_a_node_that_is_down_waits_alone_and_heals_by_itself() {
    let db = Db::new().await;
    let well = NodeDb::new(0).await;
    let (mut server, private) = own(&[]).await;
    let mut sick = NodeDb::on(private).await;
    let settings = format!("{}{}", well.settings("n1"), sick.settings("n2"));
    let service = Launch::on(&db).settings(&settings).start().await;
    let job = db.submit(on("n2", "INSERT INTO ledger VALUES (1)")).await;
    db.await_job(job, "finished").await;
    let before = latency(&db, "n1").await;
    stop(&mut server).await;
    let waiting = db.submit(on("n2", "INSERT INTO ledger VALUES (2)")).await;
    until("it is shown down", async || state(&db, "n2").await == "down").await;
    service.await_log("the node is down, its tasks wait").await;
    let after = latency(&db, "n1").await;
    assert!(after < before * 5 + Duration::from_millis(200), "{before:?} before, {after:?} with a node down");
    let task = db.tasks(waiting).await[0];
    let told = why(&db, task).await;
    assert!(told.starts_with("node n2 is down since ") && told.contains(".s.PGSQL."), "{told}");
    server.restart(StopMode::Immediate).await.unwrap();
    sick.again().await;
    db.await_job(waiting, "finished").await;
    assert_eq!(db.task(task).await.retry_count, 0);
    sick.is_exactly(2).await;
    until("it is shown well", async || state(&db, "n2").await == "active").await;
}

/// Kills the server; who wants it again restarts it.
pub async fn stop(server: &mut Cluster) {
    let pid = i32::try_from(server.pid()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGQUIT).unwrap();
    server.exited().await.unwrap();
}

/// Scenario 16, on one node; with candidates in `candidates.rs`.
#[tokio::test]
async fn scenario_16_failing_commands_and_a_refused_login_do_not_mark_a_node() {
    let db = Db::new().await;
    let node = NodeDb::new(0).await;
    let service = Launch::on(&db).settings(&node.settings("n1")).start().await;
    let tasks: Vec<Value> = (0..50)
        .map(|_| json!({ "command": "SELECT 1/0", "node": "n1", "retry": { "max_retries": 0 } }))
        .collect();
    let job = db.submit(json!({ "task": tasks })).await;
    db.await_job(job, "failed").await;
    let codes = format!("SELECT count(*) FROM yardmaster.task WHERE job_id = {job} AND sqlstate = '22012'");
    assert_eq!(db.value(&codes).await, "50");
    // Somebody who may log in at home, but not there.
    let outside = node.server.connect("postgres", "postgres").await;
    outside.batch_execute(&format!("REVOKE CONNECT ON DATABASE {} FROM PUBLIC", node.name)).await.unwrap();
    outside
        .batch_execute(&format!("GRANT CONNECT ON DATABASE {} TO yard_service, alice", node.name))
        .await
        .unwrap();
    db.sql("GRANT bob TO alice").await;
    let job = db
        .submit(json!({ "task": [{ "command": "SELECT 1", "node": "n1", "owner": "bob", "retry": { "max_retries": 0 } }] }))
        .await;
    db.await_job(job, "failed").await;
    let other = db.submit(on("n1", "SELECT 1")).await;
    db.await_job(other, "finished").await;
    assert_eq!(state(&db, "n1").await, "active");
    assert!(!service.log().contains("the node is down"));
}

/// SPEC 8: one silent node leaves the latency of the others alone.
#[tokio::test]
async fn a_silent_node_is_down_and_leaves_the_others_alone() {
    let db = Db::new().await;
    let (well, silent) = (NodeDb::new(0).await, NodeDb::new(1).await);
    let network = Proxy::of(silent.server);
    let url = network.url("yard_service", &silent.name);
    let settings = format!("{}{}", well.settings("n1"), section("n2", &url));
    let _service = Launch::on(&db).settings(&settings).start().await;
    let job = db.submit(on("n2", "SELECT 1")).await;
    db.await_job(job, "finished").await;
    let before = latency(&db, "n1").await;
    network.set("yardmaster", Weather::Silent);
    let waiting = db.submit(on("n2", "INSERT INTO ledger VALUES (1)")).await;
    let meanwhile = latency(&db, "n1").await;
    until("it is shown down", async || state(&db, "n2").await == "down").await;
    let after = latency(&db, "n1").await;
    for time in [meanwhile, after] {
        assert!(
            time < before * 5 + Duration::from_millis(200),
            "{before:?} before, {time:?} with a silent node"
        );
    }
    network.set("yardmaster", Weather::Fair);
    db.await_job(waiting, "finished").await;
    silent.is_exactly(1).await;
}

/// SPEC 5: a node that refuses connections for want of room is waited for, and not down.
#[tokio::test]
async fn a_node_without_room_is_waited_for_and_not_down() {
    let db = Db::new().await;
    let node = NodeDb::new(0).await;
    let outside = node.server.connect("postgres", "postgres").await;
    outside.batch_execute(&format!("ALTER DATABASE {} CONNECTION LIMIT 4", node.name)).await.unwrap();
    let service =
        Launch::on(&db).settings(&node.settings("n1")).set("limits.max_task_executors", "8").start().await;
    let tasks: Vec<Value> = (1..=12)
        .map(|k| json!({ "command": format!("INSERT INTO ledger VALUES ({k}); SELECT pg_sleep(0.1)"), "node": "n1" }))
        .collect();
    let job = db.submit(json!({ "task": tasks })).await;
    db.await_job(job, "finished").await;
    node.is_exactly(12).await;
    assert!(service.log().contains("SQLSTATE 53300"), "the limit was felt");
    assert!(!service.log().contains("the node is down"));
    assert_eq!(db.value("SELECT max(attempt) FROM yardmaster.task").await, "1");
}
