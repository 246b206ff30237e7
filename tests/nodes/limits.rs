//! How many run on a node, in which order, and who waits for whom.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{ALIVE, NodeDb};
use crate::support::{Db, Launch, Service, until};

fn tasks(n: usize, command: &str, node: &str) -> Value {
    json!({ "task": vec![json!({ "command": command, "node": node }); n] })
}

async fn alive(node: &NodeDb) -> u64 {
    node.value(ALIVE).await.parse().unwrap()
}

/// Home and nodes, with the set-up of the acceptance list.
async fn yard(nodes: &[(&str, &NodeDb)]) -> (Db, Service) {
    let db = Db::new().await;
    let settings: String = nodes.iter().map(|(name, node)| node.settings(name)).collect();
    let service = Launch::on(&db).settings(&settings).set("limits.max_task_executors", "64").start().await;
    db.await_true(&format!("SELECT count(*) = {} FROM yardmaster.node", nodes.len())).await;
    (db, service)
}

/// Scenario 1, shortened.
#[tokio::test]
async fn scenario_1_a_task_runs_although_its_submitter_has_left() {
    let node = NodeDb::new(0).await;
    let (db, _service) = yard(&[("n1", &node)]).await;
    let submit = "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"SELECT pg_sleep(1)\", \"node\": \"n1\"}]}')";
    let output = db.psql("alice", submit).output().unwrap();
    let job: i64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    db.await_job(job, "finished").await;
    let shown = "SELECT node || ' ' || (pid > 0) || ' ' || (ended_at - started_at BETWEEN '1s' AND '3s') FROM yardmaster.attempt";
    assert_eq!(db.value(shown).await, "n1 true true");
}

/// Scenario 2, with bounds for a busy machine; the benchmark measures.
#[tokio::test]
async fn scenario_2_tasks_start_and_end_promptly() {
    let node = NodeDb::new(0).await;
    let (db, _service) = yard(&[("n1", &node)]).await;
    let time = typical(&db, "n1").await;
    assert!(time < Duration::from_millis(300), "{time:?}");
    let link = |k: usize| match k {
        0 => json!({ "name": "t0", "command": "SELECT 1", "node": "n1" }),
        k => {
            json!({ "name": format!("t{k}"), "command": "SELECT 1", "node": "n1", "depends_on": [format!("t{}", k - 1)] })
        }
    };
    let began = Instant::now();
    let chain = db.submit(json!({ "task": (0..20).map(link).collect::<Vec<_>>() })).await;
    db.await_job(chain, "finished").await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

/// Scenario 3, shortened.
#[tokio::test]
async fn scenario_3_the_limit_of_a_node_is_hard_also_over_a_kill() {
    let node = NodeDb::new(0).await;
    let (db, mut service) = yard(&[("n1", &node)]).await;
    let job = db.submit(tasks(24, "SELECT pg_sleep(0.6)", "n1")).await;
    until("it is full", async || alive(&node).await == 8).await;
    let (mut most, mut killed) = (0, false);
    until("all are done", async || {
        most = most.max(alive(&node).await);
        if !killed && db.value("SELECT count(*) >= 8 FROM yardmaster.task WHERE status = 'done'").await == "t"
        {
            killed = true;
            service.kill9();
            service.restart().await;
        }
        db.job(job).await == "finished"
    })
    .await;
    assert!(killed);
    assert_eq!(most, 8);
    assert_eq!(db.value("SELECT max(retry_count) FROM yardmaster.task").await, "0");
}

/// Scenario 4.
#[tokio::test]
async fn scenario_4_each_node_has_its_own_limit() {
    let (first, second) = (NodeDb::new(0).await, NodeDb::new(1).await);
    let (db, _service) = yard(&[("n1", &first), ("n2", &second)]).await;
    let halves = [
        db.submit(tasks(8, "SELECT pg_sleep(2)", "n1")).await,
        db.submit(tasks(8, "SELECT pg_sleep(2)", "n2")).await,
    ];
    until("both are full", async || alive(&first).await == 8 && alive(&second).await == 8).await;
    for job in halves {
        db.await_job(job, "finished").await;
    }
}

/// Scenario 5, shortened.
#[tokio::test]
async fn scenario_5_a_limit_of_a_node_changes_while_tasks_run() {
    let node = NodeDb::new(0).await;
    let (db, service) = yard(&[("n1", &node)]).await;
    let limit = |n: u32| {
        format!(
            "[limits]\nmax_task_executors = 64\n{}",
            node.settings("n1").replace("= 8", &format!("= {n}"))
        )
    };
    let job = db.submit(tasks(20, "SELECT pg_sleep(1)", "n1")).await;
    until("it is full", async || alive(&node).await == 8).await;
    service.reload(&limit(12)).await;
    until("four more run", async || alive(&node).await == 12).await;
    service.reload(&limit(2)).await;
    let running = "SELECT string_agg(task_id::text, ',' ORDER BY task_id) FROM yardmaster.task WHERE status = 'running'";
    let those = db.value(running).await;
    until("fewer than two are left", async || {
        let now = db.value("SELECT count(*) FROM yardmaster.task WHERE status IN ('running', 'done')").await;
        now != "12"
    })
    .await;
    let late = format!(
        "SELECT count(*) FROM yardmaster.task WHERE status = 'running' AND task_id <> ALL ('{{{those}}}'::bigint[])"
    );
    let (new, all) = (db.value(&late).await, alive(&node).await);
    assert!(all <= 2 && new != "0", "{new} new among {all}");
    db.await_job(job, "finished").await;
    assert_eq!(db.value("SELECT max(attempt) FROM yardmaster.task").await, "1", "no running task was harmed");
}

/// Scenario 6.
#[tokio::test]
async fn scenario_6_they_run_in_their_order_and_higher_priority_first() {
    let node = NodeDb::new(0).await;
    let (db, _service) = yard(&[("n1", &node)]).await;
    // One at a time, whatever runs: the logical node is the bottleneck.
    let task = |command: &str| json!({ "command": command, "node": "n1", "nodes_involved": ["one"] });
    let first = db.submit(json!({ "task": [task("SELECT pg_sleep(1)")] })).await;
    until("it is occupied", async || alive(&node).await == 1).await;
    let insert = |k: usize| task(&format!("INSERT INTO ledger VALUES ({k})"));
    let job = db.submit(json!({ "task": (1..=12).map(insert).collect::<Vec<_>>() })).await;
    let mut urgent = insert(13);
    urgent["priority"] = json!(5);
    let before = db.submit(json!({ "task": [urgent] })).await;
    for job in [first, job, before] {
        db.await_job(job, "finished").await;
    }
    let order = node.value("SELECT string_agg(k::text, ' ' ORDER BY at) FROM ledger").await;
    assert_eq!(order, "13 1 2 3 4 5 6 7 8 9 10 11 12");
}

/// Scenario 7.
#[tokio::test]
async fn scenario_7_tasks_of_several_nodes_get_on_and_take_one_slot_of_each() {
    let node = NodeDb::new(0).await;
    let (db, _service) = yard(&[("n1", &node)]).await;
    let pairs = [["a", "b"], ["b", "c"], ["c", "a"], ["a", "a"]];
    let command = "INSERT INTO ledger VALUES (1); SELECT pg_sleep(0.02)";
    let task = |k: usize| json!({ "command": command, "node": "n1", "nodes_involved": pairs[k % 4] });
    let job = db.submit(json!({ "task": (0..40).map(task).collect::<Vec<_>>() })).await;
    let mut most = 0;
    until("all are done", async || {
        let busiest = "SELECT coalesce(max(used), 0) FROM yardmaster.slot_use WHERE node IN ('a', 'b', 'c')";
        most = most.max(db.value(busiest).await.parse::<u64>().unwrap());
        db.job(job).await == "finished"
    })
    .await;
    assert_eq!(most, 1);
    assert_eq!(node.value("SELECT count(*) FROM ledger").await, "40");
}

/// Scenario 8; failures 24 with a crowd that a test can wait for.
#[tokio::test]
async fn scenario_8_a_crowd_before_a_full_node_delays_nobody() {
    let (full, free) = (NodeDb::new(0).await, NodeDb::new(1).await);
    let (db, _service) = yard(&[("n1", &full), ("n2", &free)]).await;
    crowd(&db, &full, 12_000).await;
    let time = typical(&db, "n2").await;
    assert!(time < Duration::from_millis(300), "{time:?}");
}

/// Failures 24, a tenth of it: a million take minutes to be submitted here.
#[tokio::test]
#[ignore = "slow: make test-slow"]
async fn failures_24_a_large_crowd_before_a_full_node_delays_nobody() {
    let (full, free) = (NodeDb::new(0).await, NodeDb::new(1).await);
    let (db, _service) = yard(&[("n1", &full), ("n2", &free)]).await;
    let job = db.submit(tasks(1, "SELECT 1", "n2")).await;
    db.await_job(job, "finished").await;
    crowd(&db, &full, 100).await;
    let small = typical(&db, "n2").await;
    crowd(&db, &full, 100_000).await;
    let large = typical(&db, "n2").await;
    assert!(large < small * 3, "{large:?} before 100,000 that wait, {small:?} before 100");
}

/// The median time from submission to end of a task there.
async fn typical(db: &Db, node: &str) -> Duration {
    let mut times = Vec::new();
    for _ in 0..21 {
        let began = Instant::now();
        let job = db.submit(tasks(1, "SELECT 1", node)).await;
        db.await_job(job, "finished").await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[10]
}

/// Fills the eight slots of n1, and lets so many wait for one.
async fn crowd(db: &Db, full: &NodeDb, n: u32) {
    db.submit(tasks(8, "SELECT pg_sleep(600)", "n1")).await;
    until("it is full", async || alive(full).await == 8).await;
    db.alice(&format!(
        "WITH j AS (INSERT INTO yardmaster.job (description) VALUES ('crowd') RETURNING job_id)
         INSERT INTO yardmaster.task (job_id, command, node) SELECT job_id, 'SELECT 1', 'n1' FROM j, generate_series(1, {n})"
    ))
    .await;
    // The counter rises with the first that are admitted; the last has its row.
    let admitted = "SELECT EXISTS (SELECT FROM yardmaster.task_state WHERE task_id = (SELECT max(task_id) FROM yardmaster.task_spec))";
    let deadline = Instant::now() + Duration::from_secs(300);
    while db.value(admitted).await != "t" {
        assert!(Instant::now() < deadline, "never admitted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Scenario 10.
#[tokio::test]
async fn scenario_10_full_slots_do_not_keep_a_cancel_waiting() {
    let node = NodeDb::new(0).await;
    let (db, _service) = yard(&[("n1", &node)]).await;
    let job = db.submit(tasks(12, "SELECT pg_sleep(60)", "n1")).await;
    until("it is full", async || alive(&node).await == 8).await;
    let asked = Instant::now();
    db.cancel(job).await;
    db.await_job(job, "cancelled").await;
    assert_eq!(alive(&node).await, 0);
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    assert_eq!(db.statuses(job).await, vec!["cancelled"; 12]);
}
