//! Big jobs: the cost grows with the number of edges and not faster.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Db, Launch, Service};

/// Layers of tasks, each depending on all of the layer before.
fn layered(layers: usize, width: usize) -> Value {
    let name = |layer: usize, i: usize| format!("t{layer}_{i}");
    let mut tasks = Vec::new();
    for layer in 0..layers {
        let before: Vec<String> =
            if layer == 0 { Vec::new() } else { (0..width).map(|i| name(layer - 1, i)).collect() };
        tasks.extend(
            (0..width)
                .map(|i| json!({ "name": name(layer, i), "command": "SELECT 1", "depends_on": before })),
        );
    }
    json!({ "task": tasks })
}

/// One task, many that depend on it, and one that depends on them.
fn fan(width: usize) -> Value {
    let names: Vec<String> = (0..width).map(|i| format!("f{i}")).collect();
    let mut tasks = vec![json!({ "name": "first", "command": "SELECT 1" })];
    tasks.extend(
        names.iter().map(|name| json!({ "name": name, "command": "SELECT 1", "depends_on": ["first"] })),
    );
    tasks.push(json!({ "name": "last", "command": "SELECT 1", "depends_on": names }));
    json!({ "task": tasks })
}

fn chain(length: usize) -> Value {
    let task = |i: usize| {
        let before: Vec<String> = i.checked_sub(1).map(|j| format!("c{j}")).into_iter().collect();
        json!({ "name": format!("c{i}"), "command": "SELECT 1", "depends_on": before })
    };
    json!({ "task": (0..length).map(task).collect::<Vec<_>>() })
}

async fn service(db: &Db) -> Service {
    Launch::on(db).settings("[limits]\nmax_task_executors = 16\n").set("log.level", "info").start().await
}

/// Runs a job to its end and returns how long the submission and the run took.
async fn run(db: &Db, job: Value, limit: Duration) -> (Duration, Duration) {
    let begun = Instant::now();
    let id = db.submit(job).await;
    let submitted = begun.elapsed();
    let wait = db.connect("alice").await;
    let waited =
        tokio::time::timeout(limit, wait.execute("SELECT yardmaster.job_wait($1, 'finished')", &[&id])).await;
    assert!(waited.is_ok(), "not finished after {limit:?}: {}", db.job(id).await);
    waited.unwrap().unwrap();
    let bad = format!(
        "SELECT count(*) FROM yardmaster.task WHERE job_id = {id} AND (status <> 'done' OR attempt <> 1)"
    );
    assert_eq!(db.value(&bad).await, "0");
    (submitted, begun.elapsed() - submitted)
}

/// Scenario 33, scaled: 20 layers of 30.
#[tokio::test]
async fn layers_that_depend_on_all_before_finish() {
    let db = Db::new().await;
    let service = service(&db).await;
    let (submitted, _) = run(&db, layered(20, 30), Duration::from_secs(60)).await;
    assert!(submitted < Duration::from_secs(5), "submitted in {submitted:?}");
    assert!(service.memory(true) < 200 << 20, "{} bytes", service.memory(true));
}

/// Scenario 34, scaled: a fan of 2,000 and a chain of 500.
#[tokio::test]
async fn a_fan_and_a_chain_finish() {
    let db = Db::new().await;
    let service = service(&db).await;
    run(&db, fan(2_000), Duration::from_secs(60)).await;
    run(&db, chain(500), Duration::from_secs(60)).await;
    assert!(service.memory(true) < 200 << 20, "{} bytes", service.memory(true));
}

/// Scenario 33.
#[tokio::test]
#[ignore = "long: run by make test-slow"]
async fn fifty_layers_of_fifty_finish() {
    let db = Db::new().await;
    let service = service(&db).await;
    let (submitted, _) = run(&db, layered(50, 50), Duration::from_secs(300)).await;
    assert!(submitted < Duration::from_secs(10), "submitted in {submitted:?}");
    assert!(service.memory(true) < 200 << 20, "{} bytes", service.memory(true));
}

/// Scenario 34: ten times the edges take at most about ten times as long; the factor leaves room for a busy machine.
#[tokio::test]
#[ignore = "long: run by make test-slow"]
async fn ten_thousand_tasks_cost_ten_times_a_thousand() {
    let db = Db::new().await;
    let service = service(&db).await;
    for shape in [fan as fn(usize) -> Value, chain] {
        let (_, small) = run(&db, shape(999), Duration::from_secs(120)).await;
        let (_, large) = run(&db, shape(9_999), Duration::from_secs(600)).await;
        assert!(large < small * 25, "{small:?} for a tenth, {large:?} for the whole");
    }
    assert!(service.memory(true) < 300 << 20, "{} bytes", service.memory(true));
}
