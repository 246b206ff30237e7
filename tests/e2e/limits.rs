//! Limits and the order of starts.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gate::Gate;
use crate::support::{Db, Launch, PATIENCE, Service, eventually};

/// Long enough for a wrong start to show: several turns and a poll.
const A_WHILE: Duration = Duration::from_millis(1300);

async fn running(db: &Db) -> String {
    db.value("SELECT count(*) FROM yardmaster.task WHERE status = 'running'").await
}

async fn await_running(db: &Db, count: u32) {
    db.await_true(&format!("SELECT count(*) = {count} FROM yardmaster.task WHERE status = 'running'")).await;
}

fn tasks(commands: &[String]) -> Value {
    json!({ "task": commands.iter().map(|command| json!({ "command": command })).collect::<Vec<_>>() })
}

/// Scenario 14.
#[tokio::test]
async fn four_run_and_the_fifth_starts_when_one_is_cancelled() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let _service = Service::start(&db).await;
    let pair = tasks(&[gate.command(), gate.command()]);
    let first = db.submit(pair.clone()).await;
    let second = db.submit(pair).await;
    let (third, last) = db.submit_one(&gate.command()).await;
    await_running(&db, 4).await;
    db.observe(A_WHILE, async || running(&db).await == "4", "four run").await;
    assert_eq!(db.status(last).await, "runnable");
    db.cancel(first).await;
    let asked = std::time::Instant::now();
    db.await_task(last, "running").await;
    assert!(asked.elapsed() < Duration::from_secs(1), "the fifth took {:?}", asked.elapsed());
    gate.open().await;
    db.await_job(second, "finished").await;
    db.await_job(third, "finished").await;
}

/// Scenario 15.
#[tokio::test]
async fn a_limit_changes_while_tasks_run() {
    let db = Db::new().await;
    let mut gates = Vec::new();
    for number in 1..=6 {
        gates.push(Gate::close(&db, number).await);
    }
    let service = Service::start(&db).await;
    let commands: Vec<String> = gates.iter().map(Gate::command).collect();
    let job = db.submit(tasks(&commands)).await;
    let last = db.tasks(job).await[5];
    await_running(&db, 4).await;
    service.reload("[limits]\nmax_task_executors = 5\n").await;
    await_running(&db, 5).await;
    service.reload("[limits]\nmax_task_executors = 1\n").await;
    db.observe(A_WHILE, async || running(&db).await == "5", "a lower limit kills nobody").await;
    let sixth = gates.pop().unwrap();
    let fifth = gates.pop().unwrap();
    for gate in gates {
        gate.open().await;
    }
    await_running(&db, 1).await;
    db.observe(A_WHILE, async || db.status(last).await == "runnable", "the sixth waits for the fifth").await;
    fifth.open().await;
    db.await_task(last, "running").await;
    sixth.open().await;
    db.await_job(job, "finished").await;
}

/// Scenario 15, SPEC 6: an invalid file changes nothing and says where it is wrong.
#[tokio::test]
async fn an_invalid_file_changes_nothing() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let service = Service::start(&db).await;
    let job = db.submit(tasks(&vec![gate.command(); 6])).await;
    await_running(&db, 4).await;
    service.reload("[limits]\nmax_task_executors = 0\n").await;
    assert!(service.log().contains("limits.max_task_executors"), "{}", service.log());
    db.observe(A_WHILE, async || running(&db).await == "4", "the limit is still four").await;
    gate.open().await;
    db.await_job(job, "finished").await;
}

/// Scenario 16.
#[tokio::test]
async fn a_node_runs_no_more_tasks_than_its_limit() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let service = Launch::on(&db).settings("[limits]\nmax_task_executors = 8\n").start().await;
    let on = |nodes: Value| json!({ "command": gate.command(), "nodes_involved": nodes });
    let job = db
        .submit(json!({ "task": [
            on(json!(["n1", "n2"])), on(json!(["n1", "n2"])), on(json!(["n1", "n2"])),
            on(json!(["n3", "n4"])), { "command": gate.command() },
        ]}))
        .await;
    await_running(&db, 3).await;
    let one_each = ["running", "runnable", "runnable", "running", "running"];
    db.observe(A_WHILE, async || db.statuses(job).await == one_each, "one task on each node").await;
    service.reload("[limits]\nmax_task_executors = 8\nmax_task_executors_per_node = 2\n").await;
    await_running(&db, 4).await;
    let two_each = ["running", "running", "runnable", "running", "running"];
    db.observe(A_WHILE, async || db.statuses(job).await == two_each, "two tasks on each node").await;
    gate.open().await;
    db.await_job(job, "finished").await;
}

/// Scenario 17: Citus leaks the node's counter here.
#[tokio::test]
async fn waiting_for_an_executor_takes_nothing_from_the_node() {
    let db = Db::new().await;
    let (gate, short) = (Gate::close(&db, 1).await, Gate::close(&db, 2).await);
    let _service = Service::start(&db).await;
    let busy = db.submit(tasks(&[short.command(), gate.command(), gate.command(), gate.command()])).await;
    await_running(&db, 4).await;
    let on_seven = json!({ "task": [{ "command": "SELECT 1", "nodes_involved": ["n7"] }] });
    let waiting = db.submit(on_seven.clone()).await;
    let task = db.tasks(waiting).await[0];
    db.observe(A_WHILE, async || db.status(task).await != "running", "all executors are busy").await;
    short.open().await;
    let freed = std::time::Instant::now();
    db.await_task(task, "done").await;
    assert!(freed.elapsed() < Duration::from_secs(1), "{:?}", freed.elapsed());
    let again = db.submit(on_seven).await;
    db.await_job(again, "finished").await;
    gate.open().await;
    db.await_job(busy, "finished").await;
}

/// Scenario 18.
#[tokio::test]
async fn the_queue_goes_by_id_and_passes_over_who_must_wait() {
    let db = Db::new().await;
    let job = db
        .submit(json!({ "task": [
            { "command": "SELECT 1", "not_before": "2100-01-01T00:00:00Z" },
            { "command": "SELECT 1" }, { "command": "SELECT 1" }, { "command": "SELECT 1" },
            { "command": "SELECT 1", "priority": 5 },
        ]}))
        .await;
    let _service = Launch::on(&db).settings("[limits]\nmax_task_executors = 1\n").start().await;
    let [early, a, b, c, urgent] = db.tasks(job).await[..] else { panic!("five tasks") };
    db.await_task(c, "done").await;
    let order = "SELECT string_agg(task_id::text, ' ' ORDER BY started_at) FROM yardmaster.task WHERE status = 'done'";
    assert_eq!(db.value(order).await, format!("{urgent} {a} {b} {c}"));
    assert_eq!(db.status(early).await, "runnable");
}

/// Scenario 18.
#[tokio::test]
async fn a_task_starts_within_50_ms_of_its_time() {
    let db = Db::new().await;
    let _service = Launch::on(&db).settings("[limits]\nmax_task_executors = 1\n").start().await;
    let late = eventually(PATIENCE, async || {
        let sql = "INSERT INTO yardmaster.job DEFAULT VALUES RETURNING job_id";
        let job: i64 = db.alice.query_one(sql, &[]).await.unwrap().get(0);
        let sql = "INSERT INTO yardmaster.task (job_id, command, not_before)
                   VALUES ($1, 'SELECT 1', clock_timestamp() + interval '700 ms') RETURNING task_id";
        let task: i64 = db.alice.query_one(sql, &[&job]).await.unwrap().get(0);
        db.await_task(task, "done").await;
        let late = format!(
            "SELECT extract(epoch FROM t.started_at - s.not_before) * 1000 FROM yardmaster.task t
               JOIN yardmaster.task_spec s USING (task_id) WHERE t.task_id = {task}"
        );
        let late: f64 = db.value(&late).await.parse().unwrap();
        assert!(late >= 0.0, "started {late} ms late: that is early");
        (late <= 50.0).then_some(late)
    });
    assert!(late.await.is_some(), "no start was within 50 ms of its time");
}

/// SPEC 5: one warning when work first waits for slots, one line when it ends saying how long.
#[tokio::test]
async fn waiting_for_slots_is_said_once() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let service = Launch::on(&db).settings("[limits]\nmax_task_executors = 1\n").start().await;
    let job = db.submit(tasks(&vec![gate.command(); 30])).await;
    service.await_log("tasks wait for slots").await;
    gate.open().await;
    db.await_job(job, "finished").await;
    service.await_log("tasks no longer wait for slots").await;
    let log = service.log();
    assert_eq!((log.matches("tasks wait").count(), log.matches("no longer wait").count()), (1, 1), "{log}");
}

/// SPEC 3 and 5: a task that waited longer than `limits.reserve_after` for several nodes has them kept as they free.
#[tokio::test]
async fn nodes_are_kept_for_a_task_that_waited_long_for_several() {
    let db = Db::new().await;
    let mut gates = Vec::new();
    for number in 1..=3 {
        gates.push(Gate::close(&db, number).await);
    }
    let limits = |after| format!("[limits]\nmax_task_executors = 8\nreserve_after = \"{after}\"\n");
    let service = Launch::on(&db).settings(&limits("60s")).start().await;
    let on = |gate: &Gate, node| json!({ "command": gate.command(), "nodes_involved": [node] });
    let busy = db.submit(json!({ "task": [on(&gates[0], "n1"), on(&gates[1], "n2")] })).await;
    await_running(&db, 2).await;
    let pair = json!({ "command": "SELECT 1", "nodes_involved": ["n1", "n2"] });
    let crowd = db.submit(json!({ "task": [pair, on(&gates[2], "n1"), on(&gates[2], "n1")] })).await;
    let [pair, rival, later] = db.tasks(crowd).await[..] else { panic!("three tasks") };
    let mut gates = gates.into_iter();
    gates.next().unwrap().open().await;
    db.await_task(rival, "running").await;
    db.observe(A_WHILE, async || db.status(pair).await == "runnable", "its nodes are never free at once")
        .await;
    service.reload(&limits("1s")).await;
    let [second, third] = [gates.next().unwrap(), gates.next().unwrap()];
    third.open().await;
    db.await_task(rival, "done").await;
    db.observe(A_WHILE, async || db.status(later).await == "runnable", "the node is kept").await;
    second.open().await;
    db.await_task(pair, "done").await;
    db.await_job(crowd, "finished").await;
    db.await_job(busy, "finished").await;
}
