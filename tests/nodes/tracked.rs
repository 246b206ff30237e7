//! Limits of tracked tasks: those that have not ended and may run on a node.

use serde_json::{Value, json};

use crate::node::NodeDb;
use crate::support::{Db, Launch, until};

fn tasks(n: usize) -> Value {
    json!({ "task": vec![json!({ "command": "SELECT 1", "node": "n1" }); n] })
}

async fn tracked(db: &Db) -> String {
    db.value("SELECT tasks_tracked FROM yardmaster.node WHERE name = 'n1'").await
}

/// Scenario 9.
#[tokio::test]
async fn scenario_9_what_exceeds_the_tracked_limit_is_refused_whole() {
    let db = Db::new().await;
    let node = NodeDb::new(0).await;
    db.sql("CREATE ROLE tracker LOGIN IN ROLE yardmaster_admin").await;
    let boss = db.connect("tracker").await;
    let settings = format!("{}max_tracked_tasks = 100\n", node.settings("n1"));
    let mut service = Launch::on(&db).settings(&settings).start().await;
    db.await_true("SELECT EXISTS (SELECT FROM yardmaster.node WHERE max_tracked_tasks = 100)").await;
    boss.batch_execute("SELECT yardmaster.node_drain('n1')").await.unwrap();
    until("it is drained", async || db.value("SELECT state FROM yardmaster.node").await == "draining").await;
    let crowd = db.submit(tasks(100)).await;
    until("they are counted", async || tracked(&db).await == "100").await;

    // At once by job_submit.
    let refused = db.alice.query("SELECT yardmaster.job_submit($1)", &[&tasks(5)]).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "53400");
    assert_eq!(refused.message(), "node n1 has 100 of at most 100 tracked tasks: 5 more are refused");
    assert!(refused.hint().unwrap().contains("raise max_tracked_tasks of [nodes.n1]"));

    // At admission for plain rows, with those that came with them; also by the next leader.
    service.kill9();
    let plain = "WITH j AS (INSERT INTO yardmaster.job (description) VALUES ('plain') RETURNING job_id)
        INSERT INTO yardmaster.task (job_id, command, node)
        SELECT job_id, 'SELECT 1', CASE WHEN g > 1 THEN 'n1' END FROM j, generate_series(1, 5) g RETURNING job_id";
    let first: i64 = db.alice.query(plain, &[]).await.unwrap()[0].get(0);
    service.restart().await;
    let second: i64 = db.alice.query(plain, &[]).await.unwrap()[0].get(0);
    for job in [first, second] {
        db.await_job(job, "failed").await;
        assert_eq!(db.statuses(job).await, vec!["error"; 5]);
        let task = db.task(db.tasks(job).await[4]).await;
        assert_eq!(task.sqlstate.as_deref(), Some("53400"));
        let text = task.text();
        assert!(
            text.starts_with("ERROR: node n1 has 100 of at most 100 tracked tasks: 4 more are refused"),
            "{text}"
        );
        assert!(text.contains("\nHINT: "), "{text}");
    }
    assert_eq!(tracked(&db).await, "100");

    // One ends, one more is taken; and with all cancelled nothing is tracked.
    let one = db.tasks(crowd).await[0];
    db.alice(&format!("SELECT yardmaster.task_cancel({one})")).await;
    db.await_task(one, "cancelled").await;
    let more = db.submit(tasks(1)).await;
    db.await_task(db.tasks(more).await[0], "runnable").await;
    assert_eq!(tracked(&db).await, "100");
    db.cancel(crowd).await;
    db.cancel(more).await;
    db.await_job(crowd, "cancelled").await;
    db.await_job(more, "cancelled").await;
    assert_eq!(tracked(&db).await, "0");
}
