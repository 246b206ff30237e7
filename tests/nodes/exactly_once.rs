//! Effects on nodes appear exactly once, whatever dies.

use std::time::Duration;

use serde_json::{Value, json};
use yardmaster::cluster::StopMode;

use crate::node::{ALIVE, NodeDb};
use crate::support::{Db, Launch, own, until};

fn tasks(n: u64, seconds: f64) -> Value {
    let command = |k| format!("INSERT INTO ledger VALUES ({k}); SELECT pg_sleep({seconds})");
    json!((1..=n).map(|k| json!({ "command": command(k), "node": "n1" })).collect::<Vec<_>>())
}

async fn killed(n: u64, kills: u32, every: Duration) {
    let db = Db::new().await;
    let node = NodeDb::new(0).await;
    let launch = Launch::on(&db).settings(&node.settings("n1")).set("limits.max_task_executors", "64");
    let mut service = launch.start().await;
    let job = db.submit(json!({ "task": tasks(n, 0.15) })).await;
    for _ in 0..kills {
        tokio::time::sleep(every).await;
        let running: u32 = node.value(ALIVE).await.parse().unwrap();
        assert!(running <= 8, "{running} run on a node that takes 8");
        service.kill9();
        service.restart().await;
    }
    db.await_job(job, "finished").await;
    node.is_exactly(n).await;
    assert_eq!(db.value("SELECT max(retry_count) FROM yardmaster.task").await, "0");
}

/// Scenario 19, shortened.
#[tokio::test]
async fn scenario_19_kills_of_the_service_double_nothing_on_a_node() {
    killed(60, 3, Duration::from_millis(400)).await;
}

/// Scenario 19.
#[tokio::test]
#[ignore = "slow: make test-slow"]
async fn scenario_19_many_kills_of_the_service_double_nothing_on_a_node() {
    killed(200, 15, Duration::from_secs(1)).await;
}

/// Crashes of the node's server: an interruption for what ran there, never a failure.
#[tokio::test]
async fn crashes_of_a_node_double_nothing_and_spend_no_retry() {
    let db = Db::new().await;
    let (mut server, private) = own(&[]).await;
    let mut node = NodeDb::on(private).await;
    let settings = format!("[limits]\nmax_task_executors = 16\n{}", node.settings("n1"));
    let _service = Launch::on(&db).settings(&settings).start().await;
    let job = db.submit(json!({ "task": tasks(40, 0.1) })).await;
    for _ in 0..3 {
        until("something runs there", async || node.value(ALIVE).await != "0").await;
        server.restart(StopMode::Immediate).await.unwrap();
        node.again().await;
    }
    db.await_job(job, "finished").await;
    node.is_exactly(40).await;
    assert_eq!(db.value("SELECT max(retry_count) FROM yardmaster.task").await, "0");
    assert_ne!(db.value("SELECT sum(interruptions) FROM yardmaster.task").await, "0");
}
