//! Where commands run, and what is installed there.

use serde_json::json;

use crate::node::NodeDb;
use crate::support::{Db, Launch};

/// SPEC 4 and 8: the command runs there as its owner, and its record stands there, not at home.
#[tokio::test]
async fn a_command_runs_on_its_node_as_its_owner_and_leaves_its_record_there() {
    let db = Db::new().await;
    let node = NodeDb::new(0).await;
    let _service = Launch::on(&db).settings(&node.settings("n1")).start().await;
    let command = "CREATE TABLE public.who AS SELECT session_user AS name, current_database() AS place";
    let job = db.submit(json!({ "task": [{ "command": command, "node": "n1" }, { "command": "SELECT 1", "node": "n1" }] })).await;
    db.await_job(job, "finished").await;
    assert_eq!(node.value("SELECT name || ' ' || place FROM who").await, format!("alice {}", node.name));
    let record = "SELECT string_agg(kind::text, ' ') FROM yardmaster.record";
    assert_eq!(node.value(record).await, "committed", "what wrote nothing needs none");
    assert_eq!(db.value(record).await, "");
    let shown = db.value("SELECT string_agg(DISTINCT node, ' ') FROM yardmaster.attempt").await;
    assert_eq!(shown, "n1");
    // Owners can neither forge a record nor read the keys there.
    let alice = node.server.connect("alice", &node.name).await;
    for sql in
        ["SELECT * FROM yardmaster.secret", "SELECT * FROM yardmaster.record", "CREATE TABLE yardmaster.x ()"]
    {
        assert!(alice.batch_execute(sql).await.unwrap_err().to_string().contains("db error"), "{sql}");
    }
    let owner = node.value("SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'yardmaster'").await;
    assert_eq!(owner, "yardmaster_owner");
}

/// SPEC 6: nodes are added, moved and removed by a reload.
#[tokio::test]
async fn nodes_are_added_moved_and_removed_by_a_reload() {
    let db = Db::new().await;
    let (first, second) = (NodeDb::new(0).await, NodeDb::new(1).await);
    let service = Launch::on(&db).start().await;
    let run = async |k: u64| {
        let command = format!("INSERT INTO ledger VALUES ({k})");
        let job = db.submit(json!({ "task": [{ "command": command, "node": "n1" }] })).await;
        db.await_job(job, "finished").await;
    };
    service.reload(&first.settings("n1")).await;
    db.await_true("SELECT EXISTS (SELECT FROM yardmaster.node WHERE name = 'n1')").await;
    run(1).await;
    service.reload(&second.settings("n1")).await;
    run(2).await;
    service.reload("[nodes.n1]").await;
    db.sql("CREATE TABLE ledger (k bigint); GRANT INSERT ON ledger TO alice").await;
    run(3).await;
    service.reload("").await;
    db.await_true("SELECT NOT EXISTS (SELECT FROM yardmaster.node)").await;
    let refused = db
        .alice
        .query(
            "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"SELECT 1\", \"node\": \"n1\"}]}')",
            &[],
        )
        .await
        .unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42704");
    let all = (first.value("SELECT k FROM ledger").await, second.value("SELECT k FROM ledger").await);
    assert_eq!((all.0.as_str(), all.1.as_str()), ("1", "2"));
    assert_eq!(db.value("SELECT k FROM ledger").await, "3");
}

/// A schema that somebody else made there is not used, and the tasks wait.
#[tokio::test]
async fn a_schema_that_is_not_ours_is_refused_and_named() {
    let db = Db::new().await;
    let node = NodeDb::new(0).await;
    node.admin.batch_execute("CREATE SCHEMA yardmaster AUTHORIZATION bob").await.unwrap();
    let service = Launch::on(&db).settings(&node.settings("n1")).start().await;
    let job = db.submit(json!({ "task": [{ "command": "SELECT 1", "node": "n1" }] })).await;
    service.await_log("schema yardmaster belongs to role \"bob\"").await;
    let task = db.tasks(job).await[0];
    db.await_task(task, "runnable").await;
    node.admin.batch_execute("DROP SCHEMA yardmaster").await.unwrap();
    db.await_job(job, "finished").await;
}
