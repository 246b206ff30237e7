//! Tasks that may run on several nodes.

use serde_json::{Value, json};

use crate::health::stop;
use crate::node::{ALIVE, NodeDb};
use crate::support::{Db, Launch, own, until};

async fn nodes_of(db: &Db, job: i64) -> String {
    db.value(&format!(
        "SELECT string_agg(DISTINCT coalesce(node, '-'), ' ' ORDER BY coalesce(node, '-')) FROM yardmaster.task WHERE job_id = {job}"
    ))
    .await
}

async fn two(db: &Db) -> (NodeDb, NodeDb, crate::support::Service) {
    let (first, second) = (NodeDb::new(0).await, NodeDb::new(1).await);
    let settings = format!("{}{}", first.settings("n1"), second.settings("n2"));
    let service = Launch::on(db).settings(&settings).set("limits.max_task_executors", "64").start().await;
    db.await_true("SELECT count(*) = 2 FROM yardmaster.node").await;
    (first, second, service)
}

/// Scenario 16.
#[tokio::test]
async fn scenario_16_failing_commands_with_candidates_mark_no_node_and_move_nowhere() {
    let db = Db::new().await;
    let (_first, _second, service) = two(&db).await;
    let task = json!({ "command": "SELECT 1/0", "node": ["n1", "n2"], "retry": { "max_retries": 0 } });
    let job = db.submit(json!({ "task": vec![task; 50] })).await;
    db.await_job(job, "failed").await;
    let codes = format!("SELECT count(*) FROM yardmaster.task WHERE job_id = {job} AND sqlstate = '22012'");
    assert_eq!(db.value(&codes).await, "50");
    assert_eq!(db.value("SELECT string_agg(state, ' ') FROM yardmaster.node").await, "active active");
    assert_eq!(nodes_of(&db, job).await, "n1");
    assert!(!service.log().contains("the node is down"));
}

/// Scenario 17.
#[tokio::test]
async fn scenario_17_tasks_of_a_drained_node_go_to_their_next_candidate() {
    let db = Db::new().await;
    let (first, second, _service) = two(&db).await;
    let running = db
        .submit(json!({ "task": [{ "command": "INSERT INTO ledger VALUES (1); SELECT pg_sleep(2)", "node": ["n1", "n2"] }] }))
        .await;
    until("it runs on the first", async || first.value(ALIVE).await == "1").await;
    db.sql("SELECT yardmaster.node_drain('n1')").await;
    let command = |k: u64| format!("INSERT INTO ledger VALUES ({k})");
    let free: Vec<Value> = (1..=20).map(|k| json!({ "command": command(k), "node": ["n1", "n2"] })).collect();
    let moved = db.submit(json!({ "task": free })).await;
    let pinned = db.submit(json!({ "task": [{ "command": command(2), "node": "n1" }] })).await;
    db.await_job(moved, "finished").await;
    second.is_exactly(20).await;
    assert_eq!(nodes_of(&db, moved).await, "n2");
    let attempts =
        format!("SELECT string_agg(DISTINCT node, ' ') FROM yardmaster.attempt WHERE job_id = {moved}");
    assert_eq!(db.value(&attempts).await, "n2");
    let task = db.tasks(pinned).await[0];
    let why = db.value(&format!("SELECT yardmaster.task_why({task})")).await;
    assert!(why.starts_with("node n1 is draining since "), "{why}");
    // What ran ends in peace, where it is.
    db.await_job(running, "finished").await;
    assert_eq!(nodes_of(&db, running).await, "n1");
    db.sql("SELECT yardmaster.node_resume('n1')").await;
    db.await_job(pinned, "finished").await;
    first.is_exactly(2).await;
}

/// SPEC 2 and 8: candidates are declared nodes, each once, and count against the tracked limits of all of them.
#[tokio::test]
async fn candidates_are_checked_and_tracked() {
    let db = Db::new().await;
    let (first, second) = (NodeDb::new(0).await, NodeDb::new(1).await);
    let settings = format!("{}{}max_tracked_tasks = 3\n", first.settings("n1"), second.settings("n2"));
    let _service = Launch::on(&db).settings(&settings).start().await;
    db.await_true("SELECT count(*) = 2 FROM yardmaster.node").await;
    for (node, code) in [(json!(["n1", "n9"]), "42704"), (json!(["n1", "n1"]), "23514"), (json!([]), "23514")]
    {
        let job = json!({ "task": [{ "command": "SELECT 1", "node": node }] });
        let refused = db.alice.query("SELECT yardmaster.job_submit($1)", &[&job]).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), code, "{node} {refused:?}");
    }
    db.sql("SELECT yardmaster.node_drain('n1'), yardmaster.node_drain('n2')").await;
    db.await_true("SELECT bool_and(state = 'draining') FROM yardmaster.node").await;
    let many = |n: usize| json!({ "task": vec![json!({ "command": "SELECT 1", "node": ["n1", "n2"] }); n] });
    let job = db.submit(many(3)).await;
    db.await_true("SELECT sum(tasks_tracked) = 6 FROM yardmaster.node").await;
    let refused = db.alice.query("SELECT yardmaster.job_submit($1)", &[&many(1)]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "53400");
    db.sql("SELECT yardmaster.node_resume('n2')").await;
    db.await_job(job, "finished").await;
    assert_eq!(nodes_of(&db, job).await, "n2");
}

/// SPEC 8: a fault of a node moves what waits for it, and spends no retry.
#[tokio::test]
async fn tasks_of_a_node_that_is_down_go_to_their_next_candidate() {
    let db = Db::new().await;
    let (mut server, private) = own(&[]).await;
    let (sick, well) = (NodeDb::on(private).await, NodeDb::new(0).await);
    let settings = format!("{}{}", sick.settings("n1"), well.settings("n2"));
    let _service = Launch::on(&db).settings(&settings).start().await;
    db.await_true("SELECT count(*) = 2 FROM yardmaster.node").await;
    stop(&mut server).await;
    let tasks: Vec<Value> = (1..=10)
        .map(|k| json!({ "command": format!("INSERT INTO ledger VALUES ({k})"), "node": ["n1", "n2"] }))
        .collect();
    let job = db.submit(json!({ "task": tasks })).await;
    db.await_job(job, "finished").await;
    well.is_exactly(10).await;
    assert_eq!(nodes_of(&db, job).await, "n2");
    assert_eq!(db.value("SELECT max(retry_count) FROM yardmaster.task").await, "0");
}
