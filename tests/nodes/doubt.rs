//! Attempts on nodes that cannot be asked: outcome unknown, slots held, nobody else delayed.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::node::{ALIVE, NodeDb, section};
use crate::support::{Db, Launch, Proxy, Weather, until};

/// SPEC 4: an unreachable node keeps its tasks and their slots; nothing is guessed, and home does not notice.
#[tokio::test]
async fn a_silent_node_keeps_its_tasks_and_slots_and_delays_nobody() {
    let db = Db::new().await;
    let node = NodeDb::new(0).await;
    let network = Proxy::of(node.server);
    let url = network.url("yard_service", &node.name);
    let settings = format!("{}[limits]\nmax_task_executors = 16", section("n1", &url).replace("= 8", "= 1"));
    let mut service = Launch::on(&db).settings(&settings).start().await;
    let task = json!([
        { "command": "INSERT INTO ledger VALUES (1); SELECT pg_sleep(0.5)", "node": "n1" },
        { "command": "INSERT INTO ledger VALUES (2)", "node": "n1" },
    ]);
    let job = db.submit(json!({ "task": task })).await;
    until("it runs", async || node.value(ALIVE).await == "1").await;
    network.set("yardmaster", Weather::Silent);
    // A new service knows nothing of it but what the catalog says.
    service.kill9();
    service.restart().await;
    service.await_log("outcome unknown").await;
    for _ in 0..10 {
        let began = Instant::now();
        let (_, here) = db.submit_one("SELECT 1").await;
        db.await_task(here, "done").await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(db.statuses(job).await, ["running", "runnable"]);
    }
    network.set("yardmaster", Weather::Fair);
    db.await_job(job, "finished").await;
    node.is_exactly(2).await;
}

/// An outcome is asked of the database where the attempt ran, not of whatever its node leads to by now.
#[tokio::test]
async fn a_node_that_leads_elsewhere_is_not_asked_for_the_outcome() {
    let db = Db::new().await;
    let (there, elsewhere) = (NodeDb::new(0).await, NodeDb::new(1).await);
    let mut service = Launch::on(&db).settings(&there.settings("n1")).start().await;
    let command = "INSERT INTO ledger VALUES (1); SELECT pg_sleep(2)";
    let job = db.submit(json!({ "task": [{ "command": command, "node": "n1" }] })).await;
    until("it runs", async || there.value(ALIVE).await == "1").await;
    service.kill9();
    std::fs::write(service.settings_file(), elsewhere.settings("n1")).unwrap();
    service.restart().await;
    service.await_log("leads to another database than the one in which the attempt ran").await;
    assert_eq!(db.statuses(job).await, ["running"]);
    service.reload(&there.settings("n1")).await;
    db.await_job(job, "finished").await;
    there.is_exactly(1).await;
    elsewhere.is_exactly(0).await;
}
