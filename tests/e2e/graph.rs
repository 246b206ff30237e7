//! Dependencies.

use serde_json::json;

use crate::gate::Gate;
use crate::support::{Db, Service};

/// Scenario 10.
#[tokio::test]
async fn a_chain_runs_in_order() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (a int)").await;
    let _service = Service::start(&db).await;
    let job = db
        .submit(json!({ "task": [
            { "name": "a", "command": "INSERT INTO r VALUES (5)" },
            { "name": "b", "command": "UPDATE r SET a = a * 7", "depends_on": ["a"] },
            { "name": "c", "command": "UPDATE r SET a = a + 13", "depends_on": ["b"] },
        ]}))
        .await;
    db.await_job(job, "finished").await;
    assert_eq!(db.value("SELECT a FROM r").await, "48");
    let order = "SELECT bool_and(d.started_at >= p.finished_at)
          FROM yardmaster.task_depend e JOIN yardmaster.task d ON d.task_id = e.task_id
          JOIN yardmaster.task p ON p.task_id = e.depends_on";
    assert_eq!(db.value(order).await, "t");
}

/// Scenario 11.
#[tokio::test]
async fn a_diamond_meets_once_after_both_sides() {
    let db = Db::new().await;
    let (left, right) = (Gate::close(&db, 1).await, Gate::close(&db, 2).await);
    let _service = Service::start(&db).await;
    let job = db
        .submit(json!({ "task": [
            { "name": "a", "command": "SELECT 1" },
            { "name": "b", "command": left.command(), "depends_on": ["a"] },
            { "name": "c", "command": right.command(), "depends_on": ["a"] },
            { "name": "d", "command": "SELECT 1", "depends_on": ["b", "c"] },
        ]}))
        .await;
    let [_, b, c, d] = db.tasks(job).await[..] else { panic!("four tasks") };
    // Both at once: the sides overlap.
    db.await_task(b, "running").await;
    db.await_task(c, "running").await;
    right.open().await;
    db.await_task(c, "done").await;
    assert_eq!((db.status(b).await.as_str(), db.status(d).await.as_str()), ("running", "blocked"));
    left.open().await;
    db.await_job(job, "finished").await;
    assert_eq!(db.task(d).await.attempt, 1);
    let after = format!(
        "SELECT (SELECT started_at FROM yardmaster.task WHERE task_id = {d})
             >= (SELECT max(finished_at) FROM yardmaster.task WHERE task_id IN ({b}, {c}))"
    );
    assert_eq!(db.value(&after).await, "t");
}

/// Scenario 13: with a message that names the rule.
#[tokio::test]
async fn impossible_dependencies_are_refused_when_they_can_be_seen() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let later = "2100-01-01T00:00:00Z";
    let waiting = json!({ "task": [
        { "name": "a", "command": "SELECT 1", "not_before": later },
        { "name": "b", "command": "SELECT 1", "depends_on": ["a"] },
        { "name": "c", "command": "SELECT 1", "depends_on": ["b"] },
    ]});
    let job = db.submit(waiting).await;
    let [a, b, c] = db.tasks(job).await[..] else { panic!("three tasks") };
    // Before it is admitted, every task is shown as blocked.
    db.await_task(a, "runnable").await;
    let (_, foreign) = db.submit_one("SELECT 1").await;
    for (dependant, dependency, says) in [
        (a, foreign, "is not a task of job"),
        (a, 987_654, "is not a task of job"),
        (b, b, "cannot depend on itself"),
        (a, c, "close a cycle"),
        (a, b, "close a cycle"),
    ] {
        let sql = format!(
            "INSERT INTO yardmaster.task_depend (job_id, task_id, depends_on) VALUES ({job}, {dependant}, {dependency})"
        );
        let refused = db.alice.batch_execute(&sql).await.expect_err(&sql);
        assert!(refused.as_db_error().unwrap().message().contains(says), "{sql}: {refused:?}");
    }
    for (name, says) in [("nobody", "not a task of this job"), ("x", "cannot depend on itself")] {
        let job = json!({ "task": [{ "name": "x", "command": "SELECT 1", "depends_on": [name] }] });
        let refused = db.alice.query_one("SELECT yardmaster.job_submit($1)", &[&job]).await.unwrap_err();
        assert!(refused.as_db_error().unwrap().message().contains(says), "{refused:?}");
    }
    assert_eq!(db.statuses(job).await, ["runnable", "blocked", "blocked"]);
}

/// Scenario 13: also when the edge that closes the cycle points to an earlier task, as most edges do.
#[tokio::test]
async fn a_cycle_is_refused_whichever_edge_comes_last() {
    let db = Db::new().await;
    let later = "2100-01-01T00:00:00Z";
    let task = json!({ "command": "SELECT 1", "not_before": later });
    let job = db.submit(json!({ "task": [task, task, task] })).await;
    let [a, b, c] = db.tasks(job).await[..] else { panic!("three tasks") };
    let edge = "INSERT INTO yardmaster.task_depend (job_id, task_id, depends_on) VALUES ($1, $2, $3)";
    db.alice.execute(edge, &[&job, &a, &c]).await.unwrap();
    db.alice.execute(edge, &[&job, &b, &a]).await.unwrap();
    let refused = db.alice.execute(edge, &[&job, &c, &b]).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("close a cycle"), "{refused:?}");
}

/// Scenario 13, SPEC 2: what shows only after the commits is refused at admission.
#[tokio::test]
async fn a_cycle_closed_by_two_transactions_is_an_error() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let later = "2100-01-01T00:00:00Z";
    let job = db
        .submit(json!({ "task": [
            { "name": "a", "command": "SELECT 1", "not_before": later },
            { "name": "b", "command": "SELECT 1", "not_before": later },
            { "name": "c", "command": "SELECT 1" },
        ]}))
        .await;
    let [a, b, c] = db.tasks(job).await[..] else { panic!("three tasks") };
    db.await_task(c, "done").await;
    let (mut one, mut two) = (db.connect("alice").await, db.connect("alice").await);
    let (one, two) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    let edge = "INSERT INTO yardmaster.task_depend (job_id, task_id, depends_on) VALUES ($1, $2, $3)";
    one.execute(edge, &[&job, &a, &b]).await.unwrap();
    two.execute(edge, &[&job, &b, &a]).await.unwrap();
    one.commit().await.unwrap();
    db.await_task(a, "blocked").await;
    two.commit().await.unwrap();
    db.await_job(job, "failed").await;
    let sqlstates = format!(
        "SELECT string_agg(DISTINCT sqlstate, ' ') FROM yardmaster.task WHERE job_id = {job} AND status = 'error'"
    );
    assert_eq!(db.value(&sqlstates).await, "42P19");
    assert_eq!(db.status(c).await, "done");
}

/// Scenario 13: Citus leaves such a dependant blocked for ever.
#[tokio::test]
async fn a_dependency_on_a_task_that_is_done_holds_nobody_up() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, first) = db.submit_one("SELECT 1").await;
    db.await_job(job, "finished").await;
    let mut alice = db.connect("alice").await;
    let adding = alice.transaction().await.unwrap();
    let add = "INSERT INTO yardmaster.task (job_id, command) VALUES ($1, 'SELECT 2') RETURNING task_id";
    let second: i64 = adding.query_one(add, &[&job]).await.unwrap().get(0);
    let edge = "INSERT INTO yardmaster.task_depend (job_id, task_id, depends_on) VALUES ($1, $2, $3)";
    adding.execute(edge, &[&job, &second, &first]).await.unwrap();
    adding.commit().await.unwrap();
    db.await_task(second, "done").await;
    db.await_job(job, "finished").await;
}
